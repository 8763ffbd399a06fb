#include "migrations/database_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/postgres/url.h"

namespace postrider {

void DatabaseOptions::Register(Options& options) {
  options.Add("database.url", &url,
              "postgresql:// URL of the owner of the schema, for `postrider migrate`; the other "
              "URLs default to it with a user of their own",
              Options::Secret::kYes);
  options.Add("database.api_url", &api_url,
              "the API's database role (default: database.url as user postrider_api)",
              Options::Secret::kYes);
  options.Add("database.indexer_url", &indexer_url,
              "the indexer's database role (default: database.url as user postrider_indexer)",
              Options::Secret::kYes);
  options.Add("database.reader_url", &reader_url,
              "the role that snapshots are read with (default: database.url as user "
              "postrider_reader)",
              Options::Secret::kYes);
}

absl::Status DatabaseOptions::Complete() {
  struct Role {
    const char* name;
    std::string* url;
    const char* user;
  };
  const Role roles[] = {{"database.api_url", &api_url, "postrider_api"},
                        {"database.indexer_url", &indexer_url, "postrider_indexer"},
                        {"database.reader_url", &reader_url, "postrider_reader"}};
  if (!url.empty()) {
    if (const auto parsed = DatabaseUrl::Parse(url); !parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("option database.url: ", parsed.status().message()));
    }
  }
  for (const Role& role : roles) {
    if (role.url->empty()) {
      if (url.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("option ", role.name, ": give it or database.url"));
      }
      absl::StatusOr<std::string> derived = WithUser(url, role.user);
      if (!derived.ok()) return std::move(derived).status();
      *role.url = *std::move(derived);
      continue;
    }
    const auto parsed = DatabaseUrl::Parse(*role.url);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("option ", role.name, ": ", parsed.status().message()));
    }
    if (parsed->user.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("option ", role.name, ": names no user"));
    }
  }
  return absl::OkStatus();
}

}  // namespace postrider
