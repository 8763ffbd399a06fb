#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/postgres/blocking.h"
#include "core/postgres/connection.h"
#include "core/postgres/url.h"
#include "migrations/database_options.h"

namespace postrider::tests {

// A database of its own with an owner and login roles of its own (as `postrider migrate` would
// find them: the owner may create roles and is no superuser), gone when this is. It needs a server
// that POSTRIDER_DATABASE__URL leads to; tests/run starts one. Without it the test program ends at
// once and says so: no test of it could run.
class TestDatabase {
 public:
  static absl::StatusOr<std::unique_ptr<TestDatabase>> Create() {
    const char* url = std::getenv("POSTRIDER_DATABASE__URL");
    if (url == nullptr || *url == '\0') {
      EndWithout("POSTRIDER_DATABASE__URL is not set");
    }
    std::random_device random;
    auto database = std::unique_ptr<TestDatabase>(new TestDatabase());
    database->server_url_ = url;
    database->name_ = absl::StrCat("test_", getpid(), "_", absl::Hex(random(), absl::kZeroPad8));
    const absl::Status made = database->Make();
    if (!made.ok()) {
      EndWithout(absl::StrCat("POSTRIDER_DATABASE__URL leads to no server that can be used: ",
                              std::string(made.message())));
    }
    return database;
  }

  ~TestDatabase() {
    Run(owner_on_server_, absl::StrCat("DROP DATABASE IF EXISTS ", name_, " WITH (FORCE)"));
    for (const char* role : {"_api", "_indexer", "_reader", "_owner"}) {
      Run(server_url_, absl::StrCat("DROP ROLE IF EXISTS ", name_, role));
    }
  }
  TestDatabase(const TestDatabase&) = delete;
  TestDatabase& operator=(const TestDatabase&) = delete;

  // The owner's URL and those of the three roles, which exist once Migrate() was called.
  const DatabaseOptions& options() const { return options_; }
  const std::string& name() const { return name_; }
  // Of the server's own role; it owns nothing here.
  const std::string& server_url() const { return server_url_; }
  std::string role(const std::string& what) const { return absl::StrCat(name_, "_", what); }

 private:
  TestDatabase() = default;

  [[noreturn]] static void EndWithout(const std::string& why) {
    std::fprintf(stderr,
                 "%s: this test needs a PostgreSQL; run it through tests/run, which starts one, or "
                 "set it to the URL of a superuser of yours\n",
                 why.c_str());
    std::_Exit(1);
  }

  absl::Status Make() {
    ASSIGN_OR_RETURN(DatabaseUrl url, DatabaseUrl::Parse(server_url_));
    {
      ASSIGN_OR_RETURN(std::unique_ptr<BlockingSession> session,
                       BlockingSession::Open(server_url_));
      RETURN_IF_ERROR(session->Script(
          absl::StrCat("CREATE ROLE ", role("owner"), " LOGIN CREATEDB CREATEROLE PASSWORD ",
                       QuoteLiteral(url.password), " IN ROLE pg_signal_backend")));
    }
    url.user = role("owner");
    owner_on_server_ = url.ToString();
    {
      ASSIGN_OR_RETURN(std::unique_ptr<BlockingSession> session,
                       BlockingSession::Open(owner_on_server_));
      RETURN_IF_ERROR(session->Script(absl::StrCat("CREATE DATABASE ", name_)));
    }
    url.database = name_;
    options_.url = url.ToString();
    url.user = role("api");
    options_.api_url = url.ToString();
    url.user = role("indexer");
    options_.indexer_url = url.ToString();
    url.user = role("reader");
    options_.reader_url = url.ToString();
    return absl::OkStatus();
  }

  static void Run(const std::string& url, const std::string& sql) {
    if (url.empty()) return;
    auto session = BlockingSession::Open(url);
    if (session.ok()) (*session)->Script(sql).IgnoreError();
  }

  std::string server_url_;
  std::string owner_on_server_;
  std::string name_;
  DatabaseOptions options_;
};

}  // namespace postrider::tests
