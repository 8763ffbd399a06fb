#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/crypto/digest.h"
#include "core/state/durable_state_reader.h"

namespace postrider {

// A file of a savepoint: the durable entries of one changelog partition. A magic text, a version
// byte, blocks of whole entries (length, CRC-32, bytes), and a closing block with their number; so
// a reader uses nothing that it has not checked, however long the file is.

struct SavepointFileFigures {
  uint64_t bytes = 0;
  uint64_t entries = 0;
  Sha256Digest sha256{};
  friend bool operator==(const SavepointFileFigures&, const SavepointFileFigures&) = default;
};

class DurableFile;

// Writes one. It appears under its name in Finish(); without that nothing stays.
class SavepointFileWriter {
 public:
  static absl::StatusOr<std::unique_ptr<SavepointFileWriter>> Create(const std::string& directory,
                                                                     const std::string& name);
  ~SavepointFileWriter();

  absl::Status Add(const DurableEntry& entry);
  absl::StatusOr<SavepointFileFigures> Finish();

 private:
  explicit SavepointFileWriter(std::unique_ptr<DurableFile> file);
  absl::Status Write(absl::string_view bytes);
  absl::Status WriteBlock();

  std::unique_ptr<DurableFile> file_;
  Sha256Hasher hasher_;
  std::string block_;
  SavepointFileFigures figures_;
};

// Takes the bytes of one in pieces. Bounds: a block of 16 MB.
class SavepointFileDecoder {
 public:
  using Visitor = absl::FunctionRef<absl::Status(const DurableEntry&)>;

  // kDataLoss: a writer did not write this; kUnimplemented: a newer version did. After a fault no
  // further call.
  absl::Status Feed(absl::string_view piece, Visitor visit);
  // Whether that was all of it.
  absl::Status Finish() const;
  uint64_t entries() const { return entries_; }

 private:
  absl::Status TakeBlock(absl::string_view block, Visitor visit);

  std::string rest_;
  bool header_ = false;
  bool closed_ = false;
  uint64_t entries_ = 0;
};

// Reads one and compares it with what the manifest says of it: the digest at the end, when `visit`
// has seen all of it. Errors as the decoder's, all with the path.
absl::Status ReadSavepointFile(const std::string& path, const SavepointFileFigures& expected,
                               SavepointFileDecoder::Visitor visit);

}  // namespace postrider
