#include "loadtest/state.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace postrider::loadtest {
namespace {

constexpr char kMagic[] = "postrider-loadtest-state-1";
constexpr uint32_t kIndexMax = 1000000;

}  // namespace

absl::flat_hash_map<std::string, uint32_t> State::EndpointsById() const {
  absl::flat_hash_map<std::string, uint32_t> by_id;
  by_id.reserve(endpoints.size());
  for (uint32_t i = 0; i < endpoints.size(); ++i) {
    if (!endpoints[i].id.empty()) by_id[endpoints[i].id] = i;
  }
  return by_id;
}

absl::Status State::Save(const std::string& path) const {
  std::ofstream out(path, std::ios::trunc);
  out << kMagic << "\n";
  out << "plan " << fingerprint << "\n";
  out << "port " << receiver_port << "\n";
  if (!api.empty()) out << "api " << api << "\n";
  if (!publisher_key.empty()) out << "publisher " << publisher_key << "\n";
  for (size_t i = 0; i < customers.size(); ++i) {
    if (customers[i].id.empty()) continue;
    out << "customer " << i << " " << customers[i].id << " " << customers[i].key << "\n";
  }
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].id.empty()) continue;
    out << "endpoint " << i << " " << endpoints[i].id << " " << endpoints[i].secret << "\n";
  }
  out << "subscriptions " << subscriptions << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("loadtest: cannot write ", path));
  return absl::OkStatus();
}

absl::StatusOr<State> State::Load(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line) || line != kMagic) {
    return absl::NotFoundError(absl::StrCat("loadtest: ", path, " is no state file"));
  }
  State state;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string kind;
    uint32_t index = 0;
    words >> kind;
    if (kind == "plan") {
      words >> state.fingerprint;
    } else if (kind == "port") {
      words >> state.receiver_port;
    } else if (kind == "api") {
      words >> state.api;
    } else if (kind == "publisher") {
      words >> state.publisher_key;
    } else if (kind == "subscriptions") {
      words >> state.subscriptions;
    } else if (kind == "customer" && words >> index && index < kIndexMax) {
      if (state.customers.size() <= index) state.customers.resize(index + 1);
      words >> state.customers[index].id >> state.customers[index].key;
    } else if (kind == "endpoint" && words >> index && index < kIndexMax) {
      if (state.endpoints.size() <= index) state.endpoints.resize(index + 1);
      words >> state.endpoints[index].id >> state.endpoints[index].secret;
    } else {
      words.setstate(std::ios::failbit);
    }
    if (!words) {
      return absl::DataLossError(absl::StrCat("loadtest: ", path, " is damaged"));
    }
  }
  return state;
}

}  // namespace postrider::loadtest
