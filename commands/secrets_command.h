#pragma once

#include <string>

#include "absl/status/status.h"

namespace postrider {

// `postrider secrets add-key | use-key ID | reseal | rotate`: another master key, while all
// processes run; they read `secrets.key_file` again by themselves within a second or two.
struct SecretsCommand {
  enum class Verb {
    kAddKey,  // a new key, which opens and does not seal yet, at the file's end
    kUseKey,  // `key_id` seals from now on
    kReseal,  // what the database holds is sealed anew with the key that seals
    kRotate,  // all three, with `wait` in between: where all processes read this file
  };
  Verb verb = Verb::kRotate;
  std::string key_id;
  std::string wait;  // a duration; empty: 5 s
};

// Blocks. The url is of the API's role.
absl::Status RunSecretsCommand(const SecretsCommand& command, const std::string& key_file,
                               const std::string& api_url);

}  // namespace postrider
