#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/base/options.h"

namespace postrider {

// How the roles reach Postgres. Each role logs in as a database role of its own.
struct DatabaseOptions {
  std::string url;  // the owner: `postrider migrate` only
  std::string api_url;
  std::string indexer_url;
  std::string reader_url;

  void Register(Options& options);
  // Fills the empty ones from `url` with the users postrider_api, postrider_indexer and
  // postrider_reader. InvalidArgument names the option that is no postgresql:// URL or missing.
  absl::Status Complete();
};

}  // namespace postrider
