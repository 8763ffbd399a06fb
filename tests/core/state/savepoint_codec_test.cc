#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/state/savepoint_file.h"
#include "core/state/savepoint_manifest.h"
#include "tests/core/state/temporary_directory.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

struct Entry {
  std::string identity;
  uint64_t epoch = 0;
  std::string payload;
  friend bool operator==(const Entry&, const Entry&) = default;
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

absl::Status Decode(absl::string_view bytes, size_t piece_bytes, std::vector<Entry>* out) {
  SavepointFileDecoder decoder;
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, piece_bytes);
    bytes.remove_prefix(piece.size());
    const absl::Status status = decoder.Feed(piece, [&](const DurableEntry& entry) {
      out->push_back({std::string(entry.identity), entry.epoch, std::string(entry.payload)});
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  return decoder.Finish();
}

class SavepointFileTest : public testing::Test {
 protected:
  SavepointFileFigures Write(const std::vector<Entry>& entries) {
    auto writer = SavepointFileWriter::Create(directory_.path(), "file");
    EXPECT_OK(writer);
    for (const Entry& entry : entries) {
      EXPECT_OK((*writer)->Add(DurableEntry{entry.identity, entry.epoch, entry.payload}));
    }
    const auto figures = (*writer)->Finish();
    EXPECT_OK(figures);
    return *figures;
  }
  std::string path() const { return directory_.path() + "/file"; }

  tests::TemporaryDirectory directory_;
};

TEST_F(SavepointFileTest, GivesBackWhatWasWritten) {
  std::vector<Entry> entries = {{"a", 1, ""}, {std::string(1, '\0'), ~uint64_t{0}, "payload"}};
  // More than one block, and entries across the pieces of a read.
  for (uint64_t i = 0; i < 700; ++i) {
    entries.push_back({absl::StrCat("entry ", i), i, std::string(i * 3, 'x')});
  }
  const SavepointFileFigures figures = Write(entries);
  EXPECT_EQ(figures.entries, entries.size());
  EXPECT_GT(figures.bytes, 512u << 10);
  std::vector<Entry> read;
  EXPECT_OK(ReadSavepointFile(path(), figures, [&](const DurableEntry& entry) {
    read.push_back({std::string(entry.identity), entry.epoch, std::string(entry.payload)});
    return absl::OkStatus();
  }));
  EXPECT_EQ(read, entries);
}

TEST_F(SavepointFileTest, HoldsNoEntryWhenThereIsNone) {
  const SavepointFileFigures figures = Write({});
  EXPECT_EQ(figures.entries, 0u);
  EXPECT_OK(ReadSavepointFile(path(), figures,
                              [](const DurableEntry&) { return absl::InternalError("an entry"); }));
}

TEST_F(SavepointFileTest, IsTheSameInPiecesOfAnySize) {
  const std::vector<Entry> entries = {{"a", 1, "one"}, {"b", 200, std::string(300, 'y')}};
  Write(entries);
  const std::string bytes = ReadAll(path());
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, bytes.size()}) {
    std::vector<Entry> read;
    EXPECT_OK(Decode(bytes, piece, &read));
    EXPECT_EQ(read, entries);
  }
}

TEST_F(SavepointFileTest, RefusesEveryChangedByte) {
  const SavepointFileFigures figures = Write({{"a", 1, "one"}, {"b", 2, "two"}});
  const std::string bytes = ReadAll(path());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      std::vector<Entry> read;
      // What it says before it finds the fault is true.
      EXPECT_THAT(Decode(changed, 16, &read),
                  AnyOf(tests::StatusIs(absl::StatusCode::kDataLoss),
                        tests::StatusIs(absl::StatusCode::kUnimplemented)))
          << i;
      WriteAll(path(), changed);
      EXPECT_FALSE(ReadSavepointFile(path(), figures, [](const DurableEntry&) {
                     return absl::OkStatus();
                   }).ok());
    }
  }
}

TEST_F(SavepointFileTest, RefusesEveryCutAndEveryTail) {
  Write({{"a", 1, "one"}, {"b", 2, "two"}});
  const std::string bytes = ReadAll(path());
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<Entry> read;
    EXPECT_THAT(Decode(bytes.substr(0, size), 16, &read),
                tests::StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
  std::vector<Entry> read;
  EXPECT_THAT(Decode(bytes + "x", 16, &read),
              tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("more behind")));
}

TEST_F(SavepointFileTest, RefusesAnotherFileThatIsWholeInItself) {
  const SavepointFileFigures other = Write({{"a", 1, "one"}});
  Write({{"a", 1, "two"}});
  EXPECT_THAT(
      ReadSavepointFile(path(), other, [](const DurableEntry&) { return absl::OkStatus(); }),
      tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not the file")));
}

TEST_F(SavepointFileTest, SaysThatAFileIsMissingOrOfANewerVersion) {
  const SavepointFileFigures figures = Write({});
  const auto nothing = [](const DurableEntry&) { return absl::OkStatus(); };
  EXPECT_THAT(ReadSavepointFile(directory_.path() + "/none", figures, nothing),
              tests::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("missing")));
  std::string bytes = ReadAll(path());
  bytes[16] = 2;
  WriteAll(path(), bytes);
  EXPECT_THAT(ReadSavepointFile(path(), figures, nothing),
              tests::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("newer version")));
}

TEST_F(SavepointFileTest, LeavesNothingUnfinished) {
  {
    auto writer = SavepointFileWriter::Create(directory_.path(), "file");
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->Add(DurableEntry{"a", 1, "one"}));
  }
  EXPECT_THAT(directory_.Names(), testing::IsEmpty());
}

SavepointManifest Example() {
  SavepointManifest manifest;
  manifest.id = "sp_1";
  manifest.created = WallTimeFromMillis(1'704'067'200'000);
  manifest.log_identity = {1, 2, 3};
  manifest.pool = "default";
  manifest.group = "p.deliver.default";
  manifest.topic = "p.dispatch.default";
  manifest.changelogs = {"p.state.default", "p.backlog.default"};
  for (int64_t i = 0; i < 3; ++i) {
    SavepointManifest::KeyGroup key_group;
    key_group.committed = i != 1;
    key_group.offset = i * 1'000;
    key_group.metadata = std::string(static_cast<size_t>(i) * 10, 'm');
    key_group.files.resize(2);
    key_group.files[1].bytes = 300;
    key_group.files[1].entries = 7;
    key_group.files[1].sha256[31] = 9;
    manifest.key_groups.push_back(key_group);
  }
  return manifest;
}

TEST(SavepointManifestTest, GivesBackWhatWasWritten) {
  const SavepointManifest manifest = Example();
  EXPECT_THAT(DecodeSavepointManifest(EncodeSavepointManifest(manifest)),
              tests::IsOkAndHolds(manifest));
  EXPECT_EQ(manifest.bytes(), 900u);
  EXPECT_EQ(manifest.entries(), 21u);
  EXPECT_THAT(DecodeSavepointManifest(EncodeSavepointManifest(SavepointManifest())),
              tests::IsOkAndHolds(SavepointManifest()));
}

TEST(SavepointManifestTest, RefusesEveryChangedByteAndEveryCut) {
  const std::string bytes = EncodeSavepointManifest(Example());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      EXPECT_FALSE(DecodeSavepointManifest(changed).ok()) << i;
    }
    EXPECT_THAT(DecodeSavepointManifest(bytes.substr(0, i)),
                tests::StatusIs(absl::StatusCode::kDataLoss))
        << i;
  }
  EXPECT_FALSE(DecodeSavepointManifest(bytes + "x").ok());
}

TEST(SavepointManifestTest, SaysThatANewerVersionMadeIt) {
  std::string bytes = EncodeSavepointManifest(Example());
  bytes[20] = 2;
  EXPECT_THAT(DecodeSavepointManifest(bytes),
              tests::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("newer version")));
}

}  // namespace
}  // namespace postrider
