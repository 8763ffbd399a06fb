#include "commands/migrate_command.h"

#include <cstdio>
#include <string>

#include "core/base/status_macros.h"
#include "migrations/runner.h"

namespace postrider {

absl::Status RunMigrateCommand(DatabaseOptions database) {
  RETURN_IF_ERROR(database.Complete());
  ASSIGN_OR_RETURN(const MigrateReport report, Migrate(database));
  for (const std::string& name : report.applied) std::printf("applied %s\n", name.c_str());
  for (const std::string& role : report.roles_created) {
    std::printf("created role %s\n", role.c_str());
  }
  std::printf("the schema is at version %d\n", report.to);
  return absl::OkStatus();
}

}  // namespace postrider
