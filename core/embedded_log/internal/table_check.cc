#include "core/embedded_log/internal/table_check.h"

#include <rocksdb/sst_file_reader.h>

#include <utility>

#include "core/embedded_log/internal/rocks.h"
#include "core/embedded_log/internal/run_key.h"

namespace postrider::embedded_log_internal {

std::vector<TableDamage> CheckTables(rocksdb::DB& db, const rocksdb::Options& options,
                                     size_t* tables) {
  std::vector<rocksdb::LiveFileMetaData> files;
  db.GetLiveFilesMetaData(&files);
  *tables = files.size();
  std::vector<TableDamage> damaged;
  for (const rocksdb::LiveFileMetaData& file : files) {
    rocksdb::SstFileReader reader(options);
    rocksdb::Status status = reader.Open(file.db_path + file.name);
    if (status.ok()) status = reader.VerifyChecksum();
    if (status.ok()) continue;
    TableDamage damage;
    damage.file = file.name.substr(file.name.find_first_not_of('/'));
    damage.what = status.ToString();
    damage.runs = file.column_family_name == kRunsName && file.smallestkey.size() == kRunKeyBytes &&
                  file.largestkey.size() == kRunKeyBytes;
    if (damage.runs) {
      damage.first = PartitionOf(file.smallestkey);
      damage.first_base = BaseOf(file.smallestkey);
      damage.last = PartitionOf(file.largestkey);
      damage.last_base = BaseOf(file.largestkey);
    }
    damaged.push_back(std::move(damage));
  }
  return damaged;
}

}  // namespace postrider::embedded_log_internal
