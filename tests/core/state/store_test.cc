#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "core/base/random.h"
#include "core/state/heap_store.h"
#include "core/state/lazy_store.h"
#include "core/state/rocksdb_store.h"
#include "tests/contract/state_store_contract.h"
#include "tests/fakes/manual_clock.h"
#include "tests/support/loop_runner.h"
#include "tests/support/status_matchers.h"

namespace postrider::contract {
namespace {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string path = (std::filesystem::temp_directory_path() / "postrider-state-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class HeapEnvironment final : public StateStoreContractEnvironment {
 public:
  std::unique_ptr<StateStore> Make(uint64_t bytes_max) override {
    HeapStoreOptions options;
    options.bytes_max = bytes_max;
    return MakeHeapStore(options);
  }
};

class RocksdbEnvironment final : public StateStoreContractEnvironment {
 public:
  std::unique_ptr<StateStore> Make(uint64_t bytes_max) override {
    RocksdbStoreOptions options;
    options.directory = absl::StrCat(directory_.path(), "/", made_++);
    options.bytes_max = bytes_max;
    auto store = OpenRocksdbStore(*shared_, options);
    EXPECT_THAT(store, tests::IsOk());
    return *std::move(store);
  }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<RocksdbShared> shared_ = RocksdbShared::Create({});
  int made_ = 0;
};

class LazyEnvironment final : public StateStoreContractEnvironment {
 public:
  std::unique_ptr<StateStore> Make(uint64_t bytes_max) override {
    return MakeLazyStore(clock_, [bytes_max]() -> absl::StatusOr<std::unique_ptr<StateStore>> {
      HeapStoreOptions options;
      options.bytes_max = bytes_max;
      return MakeHeapStore(options);
    });
  }

 private:
  ManualClock clock_;
};

INSTANTIATE_TEST_SUITE_P(Heap, StateStoreContract, testing::Values(StateStoreContractFactory([] {
                           return std::make_unique<HeapEnvironment>();
                         })));
INSTANTIATE_TEST_SUITE_P(Lazy, StateStoreContract, testing::Values(StateStoreContractFactory([] {
                           return std::make_unique<LazyEnvironment>();
                         })));
INSTANTIATE_TEST_SUITE_P(Rocksdb, StateStoreContract, testing::Values(StateStoreContractFactory([] {
                           return std::make_unique<RocksdbEnvironment>();
                         })));

class RocksdbStoreTest : public testing::Test {
 protected:
  RocksdbStoreOptions Options() const {
    RocksdbStoreOptions options;
    options.directory = parent_.path() + "/kg-0";
    return options;
  }
  static void Put(StateStore& store) {
    StateBatch batch;
    batch.Put("k", "v");
    ASSERT_THAT(store.Apply(batch), tests::IsOk());
  }

  TemporaryDirectory parent_;
  std::unique_ptr<RocksdbShared> shared_ = RocksdbShared::Create({});
};

TEST_F(RocksdbStoreTest, BeginsEmptyOverWhatAnEarlierProcessLeft) {
  std::filesystem::create_directories(Options().directory + "/db");
  for (const char* name :
       {"/postrider.lock", "/db/CURRENT", "/db/MANIFEST-000001", "/db/000007.sst"}) {
    std::ofstream(Options().directory + name) << "damaged";
  }
  auto store = OpenRocksdbStore(*shared_, Options());
  ASSERT_THAT(store, tests::IsOk());
  std::string value;
  EXPECT_THAT((*store)->Get("k", value), tests::IsOkAndHolds(false));
  EXPECT_FALSE(std::filesystem::exists(Options().directory + "/db/000007.sst"));
  Put(**store);
}

TEST_F(RocksdbStoreTest, RefusesADirectoryThatHoldsWhatIsNotOurs) {
  std::filesystem::create_directory(Options().directory);
  const std::string precious = Options().directory + "/thesis.txt";
  std::ofstream(precious) << "dear";
  EXPECT_THAT(
      OpenRocksdbStore(*shared_, Options()),
      tests::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("not ours")));
  EXPECT_TRUE(std::filesystem::exists(precious));
}

TEST_F(RocksdbStoreTest, RefusesADirectoryThatAnotherStoreOwns) {
  auto first = OpenRocksdbStore(*shared_, Options());
  ASSERT_THAT(first, tests::IsOk());
  Put(**first);
  EXPECT_THAT(
      OpenRocksdbStore(*shared_, Options()),
      tests::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("owned by")));
  std::string value;
  EXPECT_THAT((*first)->Get("k", value), tests::IsOkAndHolds(true)) << "the owner lost its files";
  first->reset();
  EXPECT_THAT(OpenRocksdbStore(*shared_, Options()), tests::IsOk());
}

TEST_F(RocksdbStoreTest, SaysWhyADirectoryCannotBeMade) {
  RocksdbStoreOptions options;
  options.directory = parent_.path() + "/no/such/parent";
  EXPECT_THAT(OpenRocksdbStore(*shared_, options),
              tests::StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("No such file")));
}

TEST_F(RocksdbStoreTest, LeavesNoFilesBehind) {
  auto store = OpenRocksdbStore(*shared_, Options());
  ASSERT_THAT(store, tests::IsOk());
  Put(**store);
  store->reset();
  EXPECT_FALSE(std::filesystem::exists(Options().directory + "/db"));
}

TEST_F(RocksdbStoreTest, KeepsTheMemoryOfManyStoresWithinOneBudget) {
  RocksdbSharedOptions shared_options;
  shared_options.memory_bytes = 16 << 20;
  const auto shared = RocksdbShared::Create(shared_options);
  std::vector<std::unique_ptr<StateStore>> stores;
  for (int i = 0; i < 4; ++i) {
    RocksdbStoreOptions options;
    options.directory = absl::StrCat(parent_.path(), "/kg-", i);
    auto store = OpenRocksdbStore(*shared, options);
    ASSERT_THAT(store, tests::IsOk());
    stores.push_back(*std::move(store));
  }
  uint64_t highest = 0;
  StateBatch batch;
  for (int i = 0; i < 8'000; ++i) {
    batch.Clear();
    for (int j = 0; j < 2; ++j) batch.Put(absl::StrCat("key ", i, " ", j), std::string(4'000, 'v'));
    absl::Status applied;
    do {  // a flush may be behind: that is refused, and taken a moment later
      applied = stores[static_cast<size_t>(i % 4)]->Apply(batch);
    } while (applied.code() == absl::StatusCode::kResourceExhausted);
    ASSERT_THAT(applied, tests::IsOk());
    highest = std::max(highest, shared->memory_bytes());
  }
  EXPECT_LE(highest, shared_options.memory_bytes + (2 << 20)) << "64 MB were written";
  uint64_t on_disk = 0;
  for (const auto& store : stores) on_disk += store->figures().disk_bytes;
  EXPECT_GT(on_disk, 0u);
}

// What was deleted takes its room on the disk until then.
TEST_F(RocksdbStoreTest, IsCompactedWhenTheDiskIsTight) {
  const auto shared = RocksdbShared::Create(RocksdbSharedOptions());
  RocksdbStoreOptions options;
  options.directory = absl::StrCat(parent_.path(), "/kg");
  auto opened = OpenRocksdbStore(*shared, options);
  ASSERT_THAT(opened, tests::IsOk());
  StateStore& store = **opened;
  Random random(3);
  const auto write = [&](absl::string_view prefix, size_t value_bytes) {
    for (int i = 0; i < 10'000; ++i) {
      StateBatch batch;
      const std::string key = absl::StrCat(prefix, std::string(120, '-'), i);
      if (value_bytes == 0) {
        batch.Delete(key);
      } else {
        std::string value;
        while (value.size() < value_bytes) value.push_back(static_cast<char>(random.Below(256)));
        batch.Put(key, value);
      }
      absl::Status applied;
      do {  // a flush may be behind
        applied = store.Apply(batch);
      } while (applied.code() == absl::StatusCode::kResourceExhausted);
      ASSERT_THAT(applied, tests::IsOk());
    }
  };
  const SystemClock clock;
  const std::unique_ptr<EventLoop> loop = *EventLoop::Create(clock);
  const auto wait_until = [&](const std::function<bool(uint64_t)>& good) {
    return tests::RunUntil(
        *loop, [&] { return good(store.figures().disk_bytes); }, std::chrono::seconds(60));
  };
  write("a", 4'000);
  ASSERT_TRUE(wait_until([](uint64_t bytes) { return bytes > (20 << 20); }));
  EXPECT_FALSE(store.figures().may_shrink) << "what was put lives";
  write("a", 0);
  EXPECT_GT(store.figures().disk_bytes, uint64_t{20} << 20);
  EXPECT_TRUE(store.figures().may_shrink);
  shared->SetDiskTight(true);
  StateBatch batch;
  batch.Delete("never there");
  ASSERT_THAT(store.Apply(batch), tests::IsOk());
  EXPECT_TRUE(wait_until([](uint64_t bytes) { return bytes < (5 << 20); }))
      << "a store looks at itself when the disk was looked at, however little is written";
  EXPECT_TRUE(wait_until([&](uint64_t) { return !store.figures().may_shrink; }))
      << "all that it has lives";
}

// A disk of its own, of so many bytes.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path) : path_(path) {
    std::filesystem::create_directory(path);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=6m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount(path_.c_str());
  }
  bool mounted() const { return mounted_; }
  bool Enlarge() const {
    return mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT, "size=64m") == 0;
  }

 private:
  const std::string path_;
  bool mounted_ = false;
};

class FullDiskTest : public RocksdbStoreTest {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "only root may make a small disk";
    RocksdbSharedOptions shared_options;
    shared_options.memory_bytes = 4 << 20;
    shared_ = RocksdbShared::Create(shared_options);
    RocksdbStoreOptions options;
    options.directory = parent_.path() + "/disk/kg-0";
    auto store = OpenRocksdbStore(*shared_, options);
    ASSERT_THAT(store, tests::IsOk());
    store_ = *std::move(store);
  }
  static std::string Value(int i) {
    Random random(static_cast<uint64_t>(i));
    std::string value;
    while (value.size() < 2'000) value.push_back(static_cast<char>(random.Below(256)));
    return value;
  }
  absl::Status PutOne(int i) {
    StateBatch batch;
    batch.Put(absl::StrCat("k", i), Value(i));
    return store_->Apply(batch);
  }
  // Puts written_.. until `done` is true of a put's status. Each but kResourceExhausted is taken.
  bool PutUntil(const std::function<bool(const absl::Status&)>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      const absl::Status status = PutOne(written_);
      if (status.ok()) {
        ++written_;
      } else {
        EXPECT_THAT(status, tests::StatusIs(absl::StatusCode::kResourceExhausted));
        std::this_thread::yield();
      }
      if (done(status)) return true;
    }
    return false;
  }
  void FillTheDisk() {
    EXPECT_TRUE(PutUntil([](const absl::Status& status) {
      return !status.ok() && status.message().find("No space left") != std::string::npos;
    }));
    EXPECT_GT(written_, 100);
  }
  void ExpectAll() {
    for (int i = 0; i < written_; ++i) {
      std::string value;
      ASSERT_THAT(store_->Get(absl::StrCat("k", i), value), tests::IsOkAndHolds(true)) << i;
      ASSERT_EQ(value, Value(i));
    }
    std::string value;
    EXPECT_THAT(store_->Get(absl::StrCat("k", written_), value), tests::IsOkAndHolds(false));
  }

  SmallDisk disk_{parent_.path() + "/disk"};
  std::unique_ptr<StateStore> store_;
  int written_ = 0;
};

TEST_F(FullDiskTest, RefusesWritesServesReadsAndGoesOnWhenThereIsSpaceAgain) {
  FillTheDisk();
  ExpectAll();
  ASSERT_TRUE(disk_.Enlarge());
  const int before = written_;
  EXPECT_TRUE(PutUntil([&](const absl::Status&) { return written_ >= before + 3'000; }));
  ExpectAll();
  store_.reset();
}

// Files may not be larger than this; as a full quota, an error of the write alone.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*const handler_)(int);
};

TEST_F(FullDiskTest, ALimitOfTheFileSizeIsAFullDiskToo) {
  ASSERT_TRUE(disk_.Enlarge());
  {
    const FileSizeLimit limit(256 << 10);
    FillTheDisk();
    ExpectAll();
  }
  const int before = written_;
  EXPECT_TRUE(PutUntil([&](const absl::Status&) { return written_ >= before + 3'000; }));
  ExpectAll();
  store_.reset();
}

TEST_F(FullDiskTest, AStoreThatFindsNoRoomToBeOpenedSaysSo) {
  const std::string filler = parent_.path() + "/disk/filler";
  std::ofstream(filler) << std::string(16 << 20, 'x');
  RocksdbStoreOptions options;
  options.directory = parent_.path() + "/disk/kg-1";
  EXPECT_THAT(OpenRocksdbStore(*shared_, options),
              tests::StatusIs(absl::StatusCode::kResourceExhausted));
  std::filesystem::remove(filler);
  EXPECT_THAT(OpenRocksdbStore(*shared_, options), tests::IsOk());
}

TEST_F(FullDiskTest, CanBeClearedAndClosed) {
  FillTheDisk();
  // A new one needs a little space, which the old one gives back.
  ASSERT_THAT(store_->Clear(), tests::IsOk());
  written_ = 0;
  EXPECT_THAT(PutOne(0), tests::IsOk());
  FillTheDisk();
  store_.reset();
  EXPECT_FALSE(std::filesystem::exists(parent_.path() + "/disk/kg-0/db"));
}

}  // namespace
}  // namespace postrider::contract
