#include "loadtest/behaviour.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace postrider::loadtest {

absl::optional<Behaviour> ParseBehaviour(absl::string_view word, absl::string_view argument) {
  Behaviour behaviour;
  int number = -1;
  if (!argument.empty() && (!absl::SimpleAtoi(argument, &number) || number < 0)) {
    return absl::nullopt;
  }
  int status = 0;
  if (absl::SimpleAtoi(word, &status)) {
    if (status < 200 || status > 599) return absl::nullopt;
    behaviour.status = status;
    behaviour.retry_after_s = number;
    return behaviour;
  }
  if (word == "hang" || word == "reset") {
    if (number >= 0) return absl::nullopt;
    behaviour.kind = word == "hang" ? Behaviour::Kind::kHang : Behaviour::Kind::kReset;
    return behaviour;
  }
  if (number < 0) return absl::nullopt;
  if (word == "slow") {
    behaviour.delay = std::chrono::milliseconds(number);
    return behaviour;
  }
  if (word == "flaky" && number <= 100) {
    behaviour.failing_percent = number;
    return behaviour;
  }
  if (word == "limit" && number > 0) {
    behaviour.requests_per_second = number;
    return behaviour;
  }
  return absl::nullopt;
}

absl::StatusOr<Behaviours> Behaviours::Parse(absl::string_view rules) {
  Behaviours parsed;
  for (absl::string_view line : absl::StrSplit(rules, '\n')) {
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    absl::optional<Behaviour> behaviour;
    if (words.size() == 2 || words.size() == 3) {
      behaviour = ParseBehaviour(words[1], words.size() == 3 ? words[2] : absl::string_view());
    }
    if (!behaviour || words[0][0] != '/') {
      return absl::InvalidArgumentError(absl::StrCat("loadtest: no rule: ", line));
    }
    parsed.rules_.emplace_back(std::string(words[0]), *behaviour);
  }
  std::stable_sort(parsed.rules_.begin(), parsed.rules_.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  return parsed;
}

Behaviour Behaviours::For(absl::string_view path) const {
  for (const auto& [prefix, behaviour] : rules_) {
    if (path.substr(0, prefix.size()) != prefix) continue;
    if (path.size() == prefix.size() || prefix.back() == '/' || path[prefix.size()] == '/') {
      return behaviour;
    }
  }
  constexpr absl::string_view kAnswer = "/answer/";
  if (path.substr(0, kAnswer.size()) == kAnswer) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(path.substr(kAnswer.size()), absl::MaxSplits('/', 2));
    absl::optional<Behaviour> behaviour;
    if (parts.size() >= 2) behaviour = ParseBehaviour(parts[0], parts[1]);
    if (!behaviour) behaviour = ParseBehaviour(parts[0], {});
    if (behaviour) return *behaviour;
  }
  return Behaviour();
}

int RequestRates::Answer(const std::string& path, int requests_per_second, int64_t now_ms) {
  constexpr int kBreaksAt = 3;
  Rate& rate = rates_[path];
  if (now_ms < rate.broken_until_ms) return 503;
  if (std::exchange(rate.second, now_ms / 1000) != now_ms / 1000) rate.requests = 0;
  rate.requests += 1;
  if (rate.requests > kBreaksAt * requests_per_second) {
    rate.broken_until_ms = now_ms + kBrokenMs;
    ++breakdowns_;
    return 503;
  }
  return rate.requests > requests_per_second ? 429 : 200;
}

absl::optional<uint32_t> EndpointOfPath(absl::string_view path) {
  const size_t at = path.rfind("/e/");
  uint32_t index = 0;
  if (at == absl::string_view::npos || path.size() == at + 3 ||
      !absl::ascii_isdigit(static_cast<unsigned char>(path[at + 3])) ||
      !absl::SimpleAtoi(path.substr(at + 3), &index)) {
    return absl::nullopt;
  }
  return index;
}

}  // namespace postrider::loadtest
