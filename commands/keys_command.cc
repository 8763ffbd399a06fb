#include "commands/keys_command.h"

#include <cstdio>
#include <memory>

#include "absl/status/statusor.h"
#include "api/api_key.h"
#include "core/base/status_macros.h"
#include "core/postgres/blocking.h"
#include "subscriptions/registry/repository.h"

namespace postrider {

absl::Status RunKeysCreate(DatabaseOptions database, const std::string& scope,
                           const std::string& name) {
  if (scope != "operator") {
    return absl::InvalidArgumentError(
        "--scope: only operator keys are made here; the others by POST /v1/keys");
  }
  RETURN_IF_ERROR(database.Complete());
  absl::StatusOr<std::unique_ptr<BlockingSession>> session =
      BlockingSession::Open(database.api_url);
  if (!session.ok()) return session.status();
  const api::NewKey made = api::MakeKey();
  subscriptions::ApiKey key;
  key.key_id = made.key_id;
  key.secret_sha256 = made.secret_sha256;
  key.scope = subscriptions::KeyScope::kOperator;
  key.name = name;
  const absl::StatusOr<subscriptions::ApiKey> inserted =
      subscriptions::InsertKeyBlocking(**session, key);
  if (!inserted.ok()) return inserted.status();
  std::printf("%s\n", made.text.c_str());
  return absl::OkStatus();
}

}  // namespace postrider
