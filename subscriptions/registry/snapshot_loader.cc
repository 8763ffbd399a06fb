#include "subscriptions/registry/snapshot_loader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "subscriptions/registry/internal/rows.h"
#include "subscriptions/registry/snapshot_file.h"

namespace postrider::subscriptions {
namespace {

constexpr int kRowsPerPortion = 5000;
// Between the end of one look and the next one that a notification asked for.
constexpr std::chrono::milliseconds kWakeDelay{20};

// Which cluster, database and timeline this is.
constexpr char kOriginSql[] =
    "(SELECT system_identifier FROM pg_control_system())::text || '/' || "
    "(SELECT oid FROM pg_database WHERE datname = current_database())::text || '/' || "
    "CASE WHEN pg_is_in_recovery() "
    "THEN 'standby ' || (SELECT timeline_id FROM pg_control_checkpoint())::text "
    "ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END";

enum Table { kCustomers, kGrants, kEventTypes, kEndpoints, kSubscriptions, kErasures, kTables };

constexpr const char* kTableNames[] = {"customers", "grants",        "event_types",
                                       "endpoints", "subscriptions", "erasures"};

// Deleted ones too whose backlog is to become dead letters, for longer than one may wait.
constexpr char kEndpointsInFull[] =
    "deleted_at IS NULL OR (backlog_on_delete = 'dead_letter' AND deleted_at > now() - interval "
    "'30 "
    "days')";

std::string ColumnsOf(int table) {
  switch (table) {
    case kCustomers:
      return "id, generation, changed_xid";
    case kGrants:
      return "customer_id, tenant, changed_xid";
    case kEventTypes:
      return "name";
    case kEndpoints:
      return absl::StrCat(internal::kEndpointColumns, ", backlog_on_delete");
    case kErasures:
      return std::string(internal::kErasureColumns);
    default:
      return std::string(internal::kSubscriptionWishColumns);
  }
}

// Rows that `seen` did not show.
std::string ChangedSql(const PgSnapshot& seen) {
  const std::string text = QuoteLiteral(seen.ToString());
  return absl::StrCat("changed_xid >= pg_snapshot_xmin(", text,
                      "::pg_snapshot) AND NOT pg_visible_in_snapshot(changed_xid, ", text,
                      "::pg_snapshot)");
}

absl::Status AddRow(int table, const QueryResult& rows, size_t i, SnapshotBuilder& builder) {
  RowReader row(rows, i);
  const bool gone = row.Bool("gone");
  switch (table) {
    case kCustomers: {
      const CustomerId id(row.Uuid("id"));
      const uint64_t generation = row.Unsigned("generation");
      const uint64_t xid = row.Unsigned("changed_xid");
      RETURN_IF_ERROR(row.status());
      gone ? builder.RemoveCustomer(id) : builder.PutCustomer(id, generation, xid);
      break;
    }
    case kGrants: {
      const CustomerId customer(row.Uuid("customer_id"));
      const std::string tenant = row.Text("tenant");
      const uint64_t xid = row.Unsigned("changed_xid");
      RETURN_IF_ERROR(row.status());
      gone ? builder.RemoveGrant(customer, tenant) : builder.PutGrant(customer, tenant, xid);
      break;
    }
    case kEventTypes: {
      const std::string name = row.Text("name");
      RETURN_IF_ERROR(row.status());
      gone ? builder.RemoveEventType(name) : builder.PutEventType(name);
      break;
    }
    case kEndpoints: {
      Endpoint endpoint = internal::ReadEndpoint(row);
      RETURN_IF_ERROR(row.status());
      if (gone) {
        builder.RemoveEndpoint(endpoint.id);
        if (row.Text("backlog_on_delete") == "dead_letter") builder.PutDeadLettered(endpoint.id);
        RETURN_IF_ERROR(row.status());
      } else {
        builder.PutEndpoint(std::move(endpoint));
      }
      break;
    }
    case kErasures: {
      Erasure erasure = internal::ReadErasure(row);
      RETURN_IF_ERROR(row.status());
      if (gone) {
        builder.RemoveErasure(erasure.id);
      } else {
        builder.PutErasure(std::move(erasure));
      }
      break;
    }
    default: {
      Subscription subscription = internal::ReadSubscriptionWish(row);
      RETURN_IF_ERROR(row.status());
      if (gone) {
        builder.RemoveSubscription(subscription.id);
      } else {
        builder.PutSubscription(subscription.id, subscription.customer,
                                std::move(subscription.settings));
      }
    }
  }
  return absl::OkStatus();
}

ConnectionOptions WithListen(ConnectionOptions options) {
  options.application_name = "postrider snapshot";
  options.setup_sql = "LISTEN postrider_changed";
  return options;
}

}  // namespace

void SnapshotLoaderOptions::Register(Options& options_registry) {
  options_registry.AddDuration("snapshot.age_max", &age_max, std::chrono::minutes(1),
                               std::chrono::hours(24 * 30),
                               "the age past which a snapshot is too old to send by, counted from "
                               "when Postgres last confirmed it");
}

struct SnapshotLoader::Impl {
  // One load or poll, from its BEGIN to its end.
  struct Look {
    bool full = false;
    uint64_t epoch = 0;
    PgSnapshot pg_snapshot;
    std::string origin;
    std::string where;
    int table = 0;
    std::unique_ptr<SnapshotBuilder> builder;
    MonotonicTime began;
  };

  EventLoop& loop;
  const SnapshotLoaderOptions options;
  Publish publish;
  std::shared_ptr<const Snapshot> current;
  absl::Status health = absl::UnavailableError("registry: nothing is loaded yet");
  bool failing = false;

  // What the last look saw; polls ask for what came after it.
  bool loaded = false;
  PgSnapshot seen;
  std::string origin;
  MonotonicTime reconcile_at;
  MonotonicTime confirm_at;

  std::unique_ptr<Look> look;
  bool again = false;
  TimerId look_timer = 0;
  MonotonicTime look_at;
  TimerId file_timer = 0;
  TimerId write_timer = 0;
  bool dirty = false;

  Counter& full_loads;
  Counter& polls;
  Counter& failures;
  Gauge& version;
  Gauge& age;
  Gauge& subscription_count;
  Gauge& memory;
  Gauge& build_seconds;

  // Last: its callbacks use the rest.
  std::unique_ptr<Connection> connection;

  Impl(EventLoop& event_loop, ConnectionOptions connection_options,
       SnapshotLoaderOptions loader_options, Metrics& metrics, uint64_t seed, Publish on_publish)
      : loop(event_loop),
        options(std::move(loader_options)),
        publish(std::move(on_publish)),
        full_loads(metrics.AddCounter("postrider_registry_snapshot_looks_total",
                                      "Looks at the desired state, by kind", {{"kind", "full"}})),
        polls(metrics.AddCounter("postrider_registry_snapshot_looks_total",
                                 "Looks at the desired state, by kind", {{"kind", "poll"}})),
        failures(metrics.AddCounter("postrider_registry_snapshot_failures_total",
                                    "Looks at the desired state that failed")),
        version(metrics.AddGauge("postrider_registry_snapshot_version",
                                 "Count of the snapshots published by this process")),
        age(metrics.AddGauge("postrider_registry_snapshot_age_seconds",
                             "Time since Postgres last confirmed the snapshot")),
        subscription_count(metrics.AddGauge("postrider_registry_snapshot_subscriptions",
                                            "Subscriptions in the snapshot")),
        memory(metrics.AddGauge("postrider_registry_snapshot_memory_bytes",
                                "Memory of the snapshot, about")),
        build_seconds(metrics.AddGauge("postrider_registry_snapshot_build_seconds",
                                       "How long the last snapshot took to build")),
        connection(
            std::make_unique<Connection>(loop, WithListen(std::move(connection_options)), seed)) {
    connection->SetOnReady([this](bool ready) {
      if (ready) Wake();
    });
    connection->SetOnNotify([this](absl::string_view, absl::string_view) { Wake(); });
    connection->SetOnFailure([this](const absl::Status& why) {
      if (look == nullptr) Failed(why);
    });
    file_timer = loop.CallAfter(options.file_after, [this] {
      file_timer = 0;
      StartFromFile();
    });
    Plan(options.poll_interval);
  }

  ~Impl() {
    for (TimerId timer : {look_timer, file_timer, write_timer}) {
      if (timer != 0) loop.CancelTimer(timer);
    }
    // Its answers come in a later turn of the loop, when this is gone.
    look.reset();
    *alive = false;
  }
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);

  void Wake() {
    if (look != nullptr) {
      again = true;
      return;
    }
    Plan(kWakeDelay);
  }

  // The next look at the latest after `delay`.
  void Plan(std::chrono::milliseconds delay) {
    const MonotonicTime time = loop.clock().Now() + delay;
    if (look_timer != 0) {
      if (time >= look_at) return;
      loop.CancelTimer(look_timer);
    }
    look_at = time;
    look_timer = loop.CallAt(time, [this] {
      look_timer = 0;
      Begin();
    });
  }

  // Runs `next` with the rows, unless this is gone or the statement failed.
  QueryDone Then(void (Impl::*next)(QueryResult)) {
    return [this, next, still = alive](absl::StatusOr<QueryResult> result) {
      if (!*still || look == nullptr) return;
      if (!result.ok()) {
        End(std::move(result).status());
      } else {
        (this->*next)(*std::move(result));
      }
    };
  }

  void Begin() {
    UpdateAge();
    look = std::make_unique<Look>();
    look->began = loop.clock().Now();
    const std::string changed = ChangedSql(seen);
    std::string sql = absl::StrCat(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
        "SELECT pg_current_snapshot()::text AS snapshot, ",
        kOriginSql, " AS origin, ");
    if (loaded) {
      for (int t = 0; t < kTables; ++t) {
        absl::StrAppend(&sql, t == 0 ? "" : " OR ", "EXISTS (SELECT 1 FROM postrider.",
                        kTableNames[t], " WHERE ", changed, ")");
      }
    } else {
      absl::StrAppend(&sql, "true");
    }
    absl::StrAppend(&sql, " AS changed");
    connection->Script(std::move(sql), Then(&Impl::Begun));
  }

  void Begun(QueryResult result) {
    look->epoch = connection->epoch();
    RowReader row(result, 0);
    const absl::optional<PgSnapshot> now = PgSnapshot::Parse(row.Text("snapshot"));
    look->origin = row.Text("origin");
    const bool changed = row.Bool("changed");
    if (!row.status().ok()) return End(row.status());
    if (!now) return End(absl::DataLossError("registry: a pg_snapshot that cannot be read"));
    look->pg_snapshot = *now;

    // A database that is another one, or that forgot transactions that we saw.
    const bool foreign = loaded && (look->origin != origin || now->xmax() < seen.xmax());
    if (foreign) POSTRIDER_LOG(kWarn, "database is another or went back; loading all anew");
    look->full = !loaded || foreign || loop.clock().Now() >= reconcile_at;
    if (!look->full && !changed) return Commit();
    if (look->full) {
      look->builder = std::make_unique<SnapshotBuilder>(current, SnapshotBuilder::Start::kNothing);
      look->where = "deleted_at IS NULL";
    } else {
      look->builder = std::make_unique<SnapshotBuilder>(current);
      look->where = ChangedSql(seen);
    }
    NextTable();
  }

  void NextTable() {
    if (look->table == kTables) return Commit();
    connection->QueryIn(
        look->epoch,
        Statement{
            absl::StrCat("DECLARE rows NO SCROLL CURSOR FOR SELECT ", ColumnsOf(look->table),
                         ", deleted_at IS NOT NULL AS gone FROM postrider.",
                         kTableNames[look->table], " WHERE ",
                         look->table == kEndpoints && look->full ? kEndpointsInFull : look->where),
            {}},
        Then(&Impl::Declared));
  }

  void Declared(QueryResult) { Fetch(); }

  void Fetch() {
    connection->QueryIn(look->epoch,
                        Statement{absl::StrCat("FETCH ", kRowsPerPortion, " FROM rows"), {}},
                        Then(&Impl::Fetched));
  }

  void Fetched(QueryResult rows) {
    for (size_t i = 0; i < rows.rows(); ++i) {
      const absl::Status added = AddRow(look->table, rows, i, *look->builder);
      if (!added.ok()) return End(added);
    }
    if (rows.rows() == kRowsPerPortion) return Fetch();
    ++look->table;
    connection->QueryIn(look->epoch, Statement{"CLOSE rows", {}}, Then(&Impl::Closed));
  }

  void Closed(QueryResult) { NextTable(); }

  void Commit() {
    connection->QueryIn(look->epoch, Statement{"COMMIT", {}}, Then(&Impl::Committed));
  }

  void Committed(QueryResult) {
    const MonotonicTime now = loop.clock().Now();
    loaded = true;
    seen = look->pg_snapshot;
    origin = look->origin;
    if (look->full) {
      full_loads.Increment();
      reconcile_at = now + options.reconcile_interval;
    } else {
      polls.Increment();
    }
    const bool changed = look->builder != nullptr;
    if (changed || now >= confirm_at) {
      if (!changed) look->builder = std::make_unique<SnapshotBuilder>(current);
      const MonotonicTime began = loop.clock().Now();
      std::shared_ptr<const Snapshot> next =
          look->builder->Build(look->pg_snapshot, loop.clock().Wall(), look->origin);
      build_seconds.Set(std::chrono::duration<double>(loop.clock().Now() - began).count());
      confirm_at = now + options.confirm_interval;
      if (look->full) {
        POSTRIDER_LOG(kInfo, "snapshot loaded", {"customers", next->customers().size()},
                      {"endpoints", next->endpoints().size()},
                      {"subscriptions", next->subscriptions().size()}, {"grants", next->grants()},
                      {"took_ms", now - look->began});
      }
      Show(std::move(next));
      WriteSoon();
    }
    confirmed_wall = loop.clock().Wall();
    End(absl::OkStatus());
  }

  WallTime confirmed_wall;

  void Show(std::shared_ptr<const Snapshot> next) {
    current = std::move(next);
    confirmed_wall = current->confirmed_at();
    version.Set(static_cast<double>(current->version()));
    subscription_count.Set(static_cast<double>(current->subscriptions().size()));
    memory.Set(static_cast<double>(current->memory_bytes()));
    UpdateAge();
    publish(current);
  }

  void UpdateAge() {
    if (current == nullptr) return;
    age.Set(std::chrono::duration<double>(loop.clock().Wall() - confirmed_wall).count());
  }

  void Failed(const absl::Status& why) {
    if (!failing || health.message() != why.message()) {
      POSTRIDER_LOG(kWarn, "snapshot not refreshed; going on with the last one",
                    {"reason", why.message()});
    }
    failing = true;
    health = why;
  }

  void End(absl::Status status) {
    const uint64_t epoch = look->epoch;
    look.reset();
    if (status.ok()) {
      if (failing) POSTRIDER_LOG(kInfo, "snapshot is fresh again");
      failing = false;
      health = status;
    } else {
      failures.Increment();
      Failed(status);
      // What is left of the transaction goes with its connection.
      if (connection->ready() && (epoch == 0 || epoch == connection->epoch()) &&
          connection->in_transaction()) {
        connection->Reset(status);
      }
    }
    const bool wake = std::exchange(again, false) && health.ok();
    Plan(wake ? kWakeDelay : options.poll_interval);
  }

  // --- the file ------------------------------------------------------------------------------

  void StartFromFile() {
    if (current != nullptr || options.file.empty()) return;
    absl::StatusOr<std::shared_ptr<const Snapshot>> kept = ReadSnapshotFile(options.file);
    if (!kept.ok()) {
      POSTRIDER_LOG(kWarn, "no snapshot from the database nor from its file",
                    {"reason", kept.status().message()});
      return;
    }
    if (!options.Usable(**kept, loop.clock().Wall())) {
      POSTRIDER_LOG(kWarn, "the snapshot in the file is too old to be used");
      return;
    }
    POSTRIDER_LOG(kInfo, "snapshot taken from its file; the database does not answer",
                  {"subscriptions", (*kept)->subscriptions().size()});
    Show(*std::move(kept));
  }

  void WriteSoon() {
    if (options.file.empty()) return;
    dirty = true;
    if (write_timer != 0) return;
    Write();
    write_timer = loop.CallAfter(options.write_interval, [this] {
      write_timer = 0;
      if (dirty) WriteSoon();
    });
  }

  void Write() {
    dirty = false;
    const absl::Status written = WriteSnapshotFile(options.file, *current);
    if (!written.ok()) {
      POSTRIDER_LOG(kWarn, "snapshot file not written", {"reason", written.message()});
    }
  }
};

SnapshotLoader::SnapshotLoader(EventLoop& loop, ConnectionOptions connection,
                               SnapshotLoaderOptions options, Metrics& metrics, uint64_t seed,
                               Publish publish)
    : impl_(std::make_unique<Impl>(loop, std::move(connection), std::move(options), metrics, seed,
                                   std::move(publish))) {}
SnapshotLoader::~SnapshotLoader() = default;

std::shared_ptr<const Snapshot> SnapshotLoader::current() const { return impl_->current; }
absl::Status SnapshotLoader::health() const { return impl_->health; }
void SnapshotLoader::Wake() { impl_->Wake(); }

}  // namespace postrider::subscriptions
