#include "serve/network_rules.h"

#include <chrono>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"

namespace postrider {
namespace {

// Names of our own servers are looked up again.
constexpr std::chrono::seconds kOwnNamesInterval{30};

}  // namespace

absl::Status NetworkRules::Open(const std::vector<HostAndPort>& own) {
  options_.own = AddressesAmong(own);
  ASSIGN_OR_RETURN(rules_, AddressRules::Create(options_));
  return absl::OkStatus();
}

void NetworkRules::FollowOwn(EventLoop& loop, std::vector<HostAndPort> own,
                             OwnAddresses::MoreHosts more) {
  own_addresses_ = std::make_unique<OwnAddresses>(
      loop, std::move(own), std::move(more), OwnAddresses::SystemLookup(), kOwnNamesInterval,
      [this](OwnAddresses::Places places, OwnAddresses::Known known) {
        own_known_ = known == OwnAddresses::Known::kAll;
        if (places == options_.own) return;
        AddressRulesOptions options = options_;
        options.own = std::move(places);
        POSTRIDER_LOG(kInfo, "our own servers are never receivers",
                      {"addresses", options.own.size()});
        const absl::Status set = Set(std::move(options));
        POSTRIDER_CHECK(set.ok());
      });
}

// kInvalidArgument: all stays as it was.
absl::Status NetworkRules::Set(AddressRulesOptions options) {
  ASSIGN_OR_RETURN(rules_, AddressRules::Create(options));
  options_ = std::move(options);
  changed_(rules_);
  return absl::OkStatus();
}

void NetworkRules::ReadAgain() {
  absl::StatusOr<AddressRulesOptions> read = read_();
  absl::Status status = read.status();
  if (status.ok()) {
    if (read->allow == options_.allow && read->deny == options_.deny &&
        read->nat64 == options_.nat64 && read->own_hosts == options_.own_hosts) {
      POSTRIDER_LOG(kInfo, "the address lists were read again: they are as they were");
      return;
    }
    read->own = options_.own;
    status = Set(*std::move(read));
  }
  if (!status.ok()) {
    POSTRIDER_LOG(kError, "the address lists are left as they were", {"why", status.message()});
    return;
  }
  POSTRIDER_LOG(kInfo, "the address lists have changed: connections to what they refuse are closed",
                {"allow", options_.allow.size()}, {"deny", options_.deny.size()});
}

}  // namespace postrider
