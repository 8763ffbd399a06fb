#pragma once

#include <memory>
#include <string>
#include <utility>

namespace rocksdb {
class Env;
}

namespace postrider::embedded_log_internal {

// The end of a database's list of tables that a crash has torn while it was written. RocksDB takes
// an entry that is cut short for none, but one that is there whole with other bytes for damage.
// Nothing was done yet on the strength of it, unless it is damage after all: whoever opens the
// database without it looks whether all is there.
//
// Each step is one rename: whoever is killed between two leaves a list that is whole, or a copy of
// it that PutBackAside() puts in its place.
class TornManifest {
 public:
  // Cuts it off, with the whole list aside. Null: the list ends well, or is damaged before its end,
  // or cannot be written. The database is not open.
  static std::unique_ptr<TornManifest> Cut(rocksdb::Env& env, const std::string& database);
  // The list stays cut.
  void Keep();
  // The whole list is put back.
  void Restore();

  // Puts back what a process that was killed has left aside. Before the database is opened.
  static void PutBackAside(rocksdb::Env& env, const std::string& database);

 private:
  TornManifest(rocksdb::Env& env, std::string path, std::string aside)
      : env_(env), path_(std::move(path)), aside_(std::move(aside)) {}

  rocksdb::Env& env_;
  const std::string path_;
  const std::string aside_;
};

}  // namespace postrider::embedded_log_internal
