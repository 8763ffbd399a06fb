#include "core/base/options.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/base/internal/option_value.h"
#include "core/base/internal/yaml_reader.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

using internal::YamlNode;
using StringMap = absl::flat_hash_map<std::string, std::string>;

constexpr absl::string_view kEnvironmentPrefix = "POSTRIDER_";
// Names the options file and is read by main; the only such variable that is not an option.
constexpr absl::string_view kConfigVariable = "POSTRIDER_CONFIG";
constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kShownBytesMax = 64;

// What is wrong with a value, in the words that end an error's sentence; empty when it is set.
using Problem = std::string;

enum class Shape { kScalar, kList, kMap };

struct Option {
  std::string name;
  std::string help;
  std::string default_text;
  std::string allowed;
  bool secret = false;
  bool is_bool = false;
  Shape shape = Shape::kScalar;
  // By shape one of these is set.
  std::function<Problem(absl::string_view)> set_scalar;
  std::function<Problem(std::vector<std::string>)> set_list;
  std::function<void(StringMap)> set_map;
};

absl::Status Invalid(std::string message) { return absl::InvalidArgumentError(message); }

std::string EnvironmentName(absl::string_view option) {
  return absl::StrCat(kEnvironmentPrefix,
                      absl::AsciiStrToUpper(absl::StrReplaceAll(option, {{".", "__"}})));
}

bool IsOptionName(absl::string_view name) {
  if (name.empty() || name.front() == '.' || name.back() == '.') return false;
  if (absl::StrContains(name, "..") || absl::StrContains(name, "__")) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return absl::ascii_islower(byte) || absl::ascii_isdigit(byte) || c == '.' || c == '_';
  });
}

// A number as it stands, any other text in quotes and cut.
std::string Shown(absl::string_view value) {
  const bool plain = !value.empty() && value.size() <= kShownBytesMax &&
                     std::all_of(value.begin(), value.end(), [](char c) {
                       return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                              c == '-' || c == '+';
                     });
  if (plain) return std::string(value);
  const bool cut = value.size() > kShownBytesMax;
  return absl::StrCat("\"", absl::CHexEscape(value.substr(0, kShownBytesMax)), cut ? "..." : "",
                      "\"");
}

// `value` is null when it is not one text.
absl::Status Fault(const Option& option, const absl::string_view* value, absl::string_view origin,
                   absl::string_view problem) {
  const std::string shown =
      option.secret || value == nullptr ? std::string("the value") : Shown(*value);
  return Invalid(
      absl::StrCat("option ", option.name, ": ", shown, " (from ", origin, ") ", problem));
}

// The error does not name the path, which the caller may have to hide.
absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file == nullptr) return absl::ErrnoToStatus(errno, "opening");
  std::string text(kFileBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return absl::ErrnoToStatus(errno, "reading");
  if (text.size() > kFileBytesMax) return Invalid("it is larger than 1 MB");
  return text;
}

// Lines `name=value`; empty lines and those that begin with # are skipped. Errors tell lines, not
// their text, which may be secret.
absl::StatusOr<StringMap> ReadMapFile(const Option& option, const std::string& path,
                                      absl::string_view origin) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) {
    const absl::string_view shown = path;
    return Fault(option, &shown, origin,
                 absl::StrCat("names a file that cannot be read: ", text.status().message()));
  }
  StringMap map;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    const absl::string_view key = absl::StripAsciiWhitespace(line.substr(0, equals));
    if (equals == absl::string_view::npos || key.empty()) {
      return Fault(option, nullptr, origin,
                   absl::StrCat("names a file whose line ", number, " is not name=value"));
    }
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(equals + 1));
    if (!map.emplace(std::string(key), std::string(value)).second) {
      return Fault(option, nullptr, origin,
                   absl::StrCat("names a file whose line ", number, " repeats a name"));
    }
  }
  return map;
}

Problem SetList(std::vector<std::string>* field, std::vector<std::string> items) {
  for (const std::string& item : items) {
    if (item.empty()) return "has an empty item";
  }
  *field = std::move(items);
  return Problem();
}

absl::Status SetFromText(const Option& option, absl::string_view value, absl::string_view origin) {
  switch (option.shape) {
    case Shape::kScalar: {
      const Problem problem = option.set_scalar(value);
      return problem.empty() ? absl::OkStatus() : Fault(option, &value, origin, problem);
    }
    case Shape::kList: {
      std::vector<std::string> items;
      if (!absl::StripAsciiWhitespace(value).empty()) {
        for (const absl::string_view item : absl::StrSplit(value, ',')) {
          items.emplace_back(absl::StripAsciiWhitespace(item));
        }
      }
      const Problem problem = option.set_list(std::move(items));
      return problem.empty() ? absl::OkStatus() : Fault(option, &value, origin, problem);
    }
    case Shape::kMap: {
      ASSIGN_OR_RETURN(StringMap map, ReadMapFile(option, std::string(value), origin));
      option.set_map(std::move(map));
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status SetFromYaml(const Option& option, const YamlNode& node, absl::string_view origin) {
  switch (option.shape) {
    case Shape::kScalar:
      if (node.kind == YamlNode::Kind::kNull) {
        return Fault(option, nullptr, origin, "is missing");
      }
      if (node.kind != YamlNode::Kind::kScalar) {
        return Fault(option, nullptr, origin,
                     absl::StrCat("is not a single value; it takes ", option.allowed));
      }
      return SetFromText(option, node.scalar, origin);
    case Shape::kList: {
      if (node.kind != YamlNode::Kind::kSequence) {
        return Fault(option, nullptr, origin, "is not a sequence");
      }
      std::vector<std::string> items;
      for (const YamlNode& item : node.items) {
        if (item.kind != YamlNode::Kind::kScalar) {
          return Fault(option, nullptr, origin, "has an item that is not plain text");
        }
        items.push_back(item.scalar);
      }
      const Problem problem = option.set_list(std::move(items));
      return problem.empty() ? absl::OkStatus() : Fault(option, nullptr, origin, problem);
    }
    case Shape::kMap: {
      if (node.kind != YamlNode::Kind::kMapping) {
        return Fault(option, nullptr, origin, "is not a mapping");
      }
      StringMap map;
      for (const auto& [key, value] : node.entries) {
        if (value.kind != YamlNode::Kind::kScalar) {
          return Fault(option, nullptr, origin, absl::StrCat("has no plain text for ", key));
        }
        map.emplace(key, value.scalar);
      }
      option.set_map(std::move(map));
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

std::string TableCell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

// The same number as an error and the reference show it.
std::string FormatNumber(int64_t value) { return absl::StrCat(value); }

// An option of a whole number of some unit: how to read and to write it.
template <typename Parse, typename Format, typename Assign>
std::function<Problem(absl::string_view)> RangedSetter(Parse parse, Format format, int64_t least,
                                                       int64_t most, std::string wrong,
                                                       Assign assign) {
  return [=](absl::string_view text) -> Problem {
    const absl::optional<int64_t> value = parse(text);
    if (!value) return wrong;
    if (*value < least || *value > most) {
      return absl::StrCat("is out of range ", format(least), "..", format(most));
    }
    assign(*value);
    return Problem();
  };
}

absl::optional<int64_t> ParseWholeNumber(absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return absl::nullopt;
  return value;
}

}  // namespace

struct Options::Impl {
  // Options never move once they are registered.
  std::vector<std::unique_ptr<Option>> options;
  absl::flat_hash_map<std::string, const Option*> by_name;
  absl::flat_hash_map<std::string, const Option*> by_environment_name;

  Option& Add(absl::string_view name, absl::string_view help, std::string default_text,
              std::string allowed) {
    POSTRIDER_CHECK(IsOptionName(name));
    auto option = std::make_unique<Option>();
    option->name = std::string(name);
    option->help = std::string(help);
    option->default_text = std::move(default_text);
    option->allowed = std::move(allowed);
    POSTRIDER_CHECK(!IsSection(name));
    for (const auto& other : options) {
      POSTRIDER_CHECK(!absl::StartsWith(name, absl::StrCat(other->name, ".")));
    }
    POSTRIDER_CHECK(by_name.emplace(option->name, option.get()).second);
    POSTRIDER_CHECK(by_environment_name.emplace(EnvironmentName(name), option.get()).second);
    options.push_back(std::move(option));
    return *options.back();
  }

  const Option* Find(absl::string_view name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  }

  bool IsSection(absl::string_view name) const {
    const std::string prefix = absl::StrCat(name, ".");
    return std::any_of(options.begin(), options.end(),
                       [&](const auto& option) { return absl::StartsWith(option->name, prefix); });
  }

  absl::Status Unknown(absl::string_view name, absl::string_view origin) const {
    const Option* nearest = nullptr;
    int nearest_distance = 0;
    const absl::string_view compared = name.substr(0, 2 * kShownBytesMax);
    for (const auto& option : options) {
      const int distance = internal::EditDistance(compared, option->name);
      if (nearest != nullptr && distance >= nearest_distance) continue;
      nearest = option.get();
      nearest_distance = distance;
    }
    return Invalid(absl::StrCat(
        "option ", absl::CHexEscape(compared), " (from ", origin, ") is unknown",
        nearest == nullptr ? "" : absl::StrCat("; did you mean ", nearest->name, "?")));
  }

  // `seen`: the options that this document has set, since "a.b" and a: {b} are the same.
  absl::Status LoadNode(const YamlNode& node, const std::string& name, absl::string_view origin,
                        absl::flat_hash_set<const Option*>* seen) const {
    const std::string place = absl::StrCat(origin, ":", node.line);
    if (const Option* option = Find(name); option != nullptr) {
      if (!seen->insert(option).second) return Fault(*option, nullptr, place, "stands twice");
      return SetFromYaml(*option, node, place);
    }
    if (!name.empty() && !IsSection(name)) return Unknown(name, place);
    if (node.kind == YamlNode::Kind::kNull) return absl::OkStatus();
    if (node.kind != YamlNode::Kind::kMapping) {
      return Invalid(name.empty()
                         ? absl::StrCat("options ", place, ": is not a mapping of options")
                         : absl::StrCat("option ", name, " (from ", place, ") is a section"));
    }
    for (const auto& [key, value] : node.entries) {
      RETURN_IF_ERROR(
          LoadNode(value, name.empty() ? key : absl::StrCat(name, ".", key), origin, seen));
    }
    return absl::OkStatus();
  }
};

Options::Options() : impl_(std::make_unique<Impl>()) {}
Options::~Options() = default;

void Options::Add(absl::string_view name, std::string* field, absl::string_view help,
                  Secret secret) {
  Option& option = impl_->Add(name, help, *field, "text");
  option.secret = secret == Secret::kYes;
  option.set_scalar = [field](absl::string_view text) {
    *field = std::string(text);
    return Problem();
  };
}

void Options::AddChoice(absl::string_view name, std::string* field,
                        std::vector<std::string> allowed, absl::string_view help) {
  POSTRIDER_CHECK(std::find(allowed.begin(), allowed.end(), *field) != allowed.end());
  Option& option = impl_->Add(name, help, *field, absl::StrJoin(allowed, ", "));
  option.set_scalar = [field, allowed = std::move(allowed)](absl::string_view text) -> Problem {
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
      return absl::StrCat("is not one of ", absl::StrJoin(allowed, ", "));
    }
    *field = std::string(text);
    return Problem();
  };
}

void Options::Add(absl::string_view name, bool* field, absl::string_view help) {
  Option& option = impl_->Add(name, help, *field ? "true" : "false", "true, false");
  option.is_bool = true;
  option.set_scalar = [field](absl::string_view text) -> Problem {
    if (text != "true" && text != "false") return "is not one of true, false";
    *field = text == "true";
    return Problem();
  };
}

void Options::Add(absl::string_view name, int64_t* field, int64_t least, int64_t most,
                  absl::string_view help) {
  POSTRIDER_CHECK(least <= *field && *field <= most);
  const std::string range = absl::StrCat(least, "..", most);
  Option& option = impl_->Add(name, help, absl::StrCat(*field), range);
  option.set_scalar = RangedSetter(ParseWholeNumber, FormatNumber, least, most,
                                   absl::StrCat("is not a whole number in ", range),
                                   [field](int64_t value) { *field = value; });
}

void Options::Add(absl::string_view name, double* field, double least, double most,
                  absl::string_view help) {
  POSTRIDER_CHECK(least <= *field && *field <= most);
  const std::string range = absl::StrCat(least, "..", most);
  Option& option = impl_->Add(name, help, absl::StrCat(*field), range);
  option.set_scalar = [=](absl::string_view text) -> Problem {
    double value = 0;
    if (!absl::SimpleAtod(text, &value)) return absl::StrCat("is not a number in ", range);
    // Written so that NaN is refused.
    if (!(value >= least && value <= most)) return absl::StrCat("is out of range ", range);
    *field = value;
    return Problem();
  };
}

void Options::AddBytes(absl::string_view name, int64_t* field, int64_t least, int64_t most,
                       absl::string_view help) {
  POSTRIDER_CHECK(least <= *field && *field <= most);
  const auto format = internal::FormatByteSize;
  const std::string range = absl::StrCat(format(least), "..", format(most));
  Option& option = impl_->Add(name, help, format(*field), range);
  option.set_scalar =
      RangedSetter(internal::ParseByteSize, format, least, most,
                   absl::StrCat("is not a whole number of B, KB, MB or GB in ", range),
                   [field](int64_t value) { *field = value; });
}

void Options::AddDuration(absl::string_view name, std::chrono::milliseconds* field,
                          std::chrono::milliseconds least, std::chrono::milliseconds most,
                          absl::string_view help) {
  POSTRIDER_CHECK(least <= *field && *field <= most);
  const auto format = internal::FormatMillis;
  const std::string range = absl::StrCat(format(least.count()), "..", format(most.count()));
  Option& option = impl_->Add(name, help, format(field->count()), range);
  option.set_scalar =
      RangedSetter(internal::ParseMillis, format, least.count(), most.count(),
                   absl::StrCat("is not a whole number of ms, s, m, h or d in ", range),
                   [field](int64_t value) { *field = std::chrono::milliseconds(value); });
}

void Options::AddList(absl::string_view name, std::vector<std::string>* field,
                      absl::string_view help) {
  Option& option = impl_->Add(name, help, absl::StrJoin(*field, ","), "list");
  option.shape = Shape::kList;
  option.set_list = [field](std::vector<std::string> items) {
    return SetList(field, std::move(items));
  };
}

void Options::AddMap(absl::string_view name, StringMap* field, absl::string_view help,
                     Secret secret) {
  std::vector<std::string> pairs;
  for (const auto& [key, value] : *field) pairs.push_back(absl::StrCat(key, "=", value));
  std::sort(pairs.begin(), pairs.end());
  Option& option = impl_->Add(name, help, absl::StrJoin(pairs, ","), "map");
  option.secret = secret == Secret::kYes;
  option.shape = Shape::kMap;
  option.set_map = [field](StringMap map) { *field = std::move(map); };
}

absl::Status Options::LoadYamlFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("options file ", path, ": ", text.status().message()));
  }
  return LoadYaml(*text, path);
}

absl::Status Options::LoadYaml(absl::string_view text, absl::string_view origin) {
  ASSIGN_OR_RETURN(const YamlNode root, internal::ReadYaml(text, origin));
  absl::flat_hash_set<const Option*> seen;
  return impl_->LoadNode(root, std::string(), origin, &seen);
}

absl::Status Options::LoadEnvironment(const std::vector<std::string>& environment) {
  for (const absl::string_view line : environment) {
    const size_t equals = line.find('=');
    const absl::string_view name = line.substr(0, equals);
    if (!absl::StartsWith(name, kEnvironmentPrefix) || name == kConfigVariable) continue;
    const auto found = impl_->by_environment_name.find(name);
    if (found == impl_->by_environment_name.end()) {
      const std::string option = absl::StrReplaceAll(
          absl::AsciiStrToLower(name.substr(kEnvironmentPrefix.size())), {{"__", "."}});
      return impl_->Unknown(option, name);
    }
    const absl::string_view value =
        equals == absl::string_view::npos ? absl::string_view() : line.substr(equals + 1);
    RETURN_IF_ERROR(SetFromText(*found->second, value, name));
  }
  return absl::OkStatus();
}

absl::Status Options::LoadFlags(const std::vector<std::string>& flags) {
  for (size_t i = 0; i < flags.size(); ++i) {
    absl::string_view flag = flags[i];
    // A stray word may be a secret that missed its flag: say where it stands only.
    if (!absl::ConsumePrefix(&flag, "--") || flag.empty()) {
      return Invalid(absl::StrCat("argument ", i + 1, " is not of the form --name=value"));
    }
    const size_t equals = flag.find('=');
    const absl::string_view name = flag.substr(0, equals);
    const std::string origin = absl::StrCat("--", absl::CHexEscape(name));
    const Option* option = impl_->Find(name);
    if (option == nullptr) return impl_->Unknown(name, origin);
    if (equals != absl::string_view::npos) {
      RETURN_IF_ERROR(SetFromText(*option, flag.substr(equals + 1), origin));
      continue;
    }
    const bool has_next = i + 1 < flags.size() && !absl::StartsWith(flags[i + 1], "--");
    const bool next_is_bool = has_next && (flags[i + 1] == "true" || flags[i + 1] == "false");
    if (option->is_bool && !next_is_bool) {
      RETURN_IF_ERROR(SetFromText(*option, "true", origin));
      continue;
    }
    if (!has_next) return Fault(*option, nullptr, origin, "is missing");
    RETURN_IF_ERROR(SetFromText(*option, flags[++i], origin));
  }
  return absl::OkStatus();
}

std::string Options::Reference() const {
  std::string text = "| option | default | range | environment | help |\n|---|---|---|---|---|\n";
  for (const auto& option : impl_->options) {
    std::string shown = absl::StrCat("`", option->default_text, "`");
    if (option->default_text.empty()) shown.clear();
    if (option->secret && !shown.empty()) shown = "(secret)";
    absl::StrAppend(&text, "| `", option->name, "` | ", TableCell(shown), " | ",
                    TableCell(option->allowed), " | `", EnvironmentName(option->name), "` | ",
                    TableCell(option->help), " |\n");
  }
  return text;
}

}  // namespace postrider
