#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace postrider {

// Every option of the program, by dotted name ("worker.shards"). A component's options struct
// registers its fields once, with their range and a help line; the field's value at that moment is
// the default. Values come from, later ones win: the YAML file, the environment
// (POSTRIDER_WORKER__SHARDS), flags (--worker.shards=4). An unknown name, a wrong type or a value
// out of range is an InvalidArgument that names the option, where it was given, the value and what
// is allowed; the value of an option registered as secret is never shown.
//
// Sizes take units B, KB, MB, GB (powers of 1024); durations ms, s, m, h, d; a bare number is refused
// for both unless 0.
//
// Threads: one, at start.
class Options {
 public:
  Options();
  ~Options();

  enum class Secret { kNo, kYes };

  void Add(absl::string_view name, std::string* field, absl::string_view help,
           Secret secret = Secret::kNo);
  // A closed set of words.
  void AddChoice(absl::string_view name, std::string* field, std::vector<std::string> allowed,
                 absl::string_view help);
  void Add(absl::string_view name, bool* field, absl::string_view help);
  void Add(absl::string_view name, int64_t* field, int64_t least, int64_t most,
           absl::string_view help);
  void Add(absl::string_view name, double* field, double least, double most,
           absl::string_view help);
  void AddBytes(absl::string_view name, int64_t* field, int64_t least, int64_t most,
                absl::string_view help);
  void AddDuration(absl::string_view name, std::chrono::milliseconds* field,
                   std::chrono::milliseconds least, std::chrono::milliseconds most,
                   absl::string_view help);
  // In YAML a sequence, in flags and the environment separated by commas.
  void AddList(absl::string_view name, std::vector<std::string>* field, absl::string_view help);
  // In YAML a mapping of scalars; a path to a file of `name=value` lines elsewhere.
  void AddMap(absl::string_view name, absl::flat_hash_map<std::string, std::string>* field,
              absl::string_view help, Secret secret = Secret::kNo);

  absl::Status LoadYamlFile(const std::string& path);
  absl::Status LoadYaml(absl::string_view text, absl::string_view origin);
  // `environment`: lines NAME=VALUE, as environ.
  absl::Status LoadEnvironment(const std::vector<std::string>& environment);
  // `flags`: "--a.b=c" or "--a.b", "c"; a bool may stand alone.
  absl::Status LoadFlags(const std::vector<std::string>& flags);

  // Markdown: every option with its default, range, environment name and help.
  std::string Reference() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace postrider
