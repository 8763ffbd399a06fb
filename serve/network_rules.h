#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/event_loop.h"
#include "core/http/address_guard.h"
#include "core/http/own_addresses.h"

namespace postrider {

// Who may be reached: network.allow and network.deny, which may be read again, without the
// addresses of our own servers, which are looked up again and again.
//
// Threads: the loop's.
class NetworkRules {
 public:
  // Reads network.allow and network.deny as they stand now.
  using Read = std::function<absl::StatusOr<AddressRulesOptions>()>;
  using Changed = std::function<void(const std::shared_ptr<const AddressRules>&)>;

  // `changed`: whoever may be reached no longer is to be left at once.
  NetworkRules(AddressRulesOptions options, Read read, Changed changed)
      : options_(std::move(options)), read_(std::move(read)), changed_(std::move(changed)) {}

  // Before rules() is asked. `own`: our servers, of which only those given by address count yet.
  absl::Status Open(const std::vector<HostAndPort>& own);

  // From now on `own` and what `more` says are looked up on a thread, and followed. `loop` outlives
  // this.
  void FollowOwn(EventLoop& loop, std::vector<HostAndPort> own, OwnAddresses::MoreHosts more);
  // Every name of our own servers was found.
  bool own_known() const { return own_known_; }

  // What is wrong in what is read leaves all as it was, with a log line.
  void ReadAgain();

  const std::shared_ptr<const AddressRules>& rules() const { return rules_; }

 private:
  absl::Status Set(AddressRulesOptions options);

  AddressRulesOptions options_;  // in force
  const Read read_;
  const Changed changed_;
  std::shared_ptr<const AddressRules> rules_;
  bool own_known_ = false;
  std::unique_ptr<OwnAddresses> own_addresses_;
};

}  // namespace postrider
