#include "subscriptions/registry/snapshot_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/bytes.h"
#include "core/base/status_macros.h"
#include "core/crypto/digest.h"

namespace postrider::subscriptions {
namespace {

constexpr absl::string_view kMagic = "postrider snapshot\n";
// 2: with all settings of an endpoint; 3: with what is to be forgotten. The others are read too.
constexpr uint8_t kVersion = 3;
constexpr uint8_t kVersionFirst = 1;
constexpr size_t kDigestBytes = 32;

template <typename IdType>
void WriteId(ByteWriter& out, const IdType& id) {
  out.Raw(id.view());
}

IdBytes ReadIdBytes(ByteReader& in) {
  IdBytes bytes{};
  const absl::string_view raw = in.Raw(bytes.size());
  if (raw.size() == bytes.size()) std::memcpy(bytes.data(), raw.data(), bytes.size());
  return bytes;
}
template <typename IdType>
IdType ReadId(ByteReader& in) {
  return IdType(ReadIdBytes(in));
}

void WriteDouble(ByteWriter& out, double value) {
  uint64_t bits = 0;
  static_assert(sizeof(bits) == sizeof(value));
  std::memcpy(&bits, &value, sizeof(bits));
  out.U64(bits);
}
double ReadDouble(ByteReader& in) {
  const uint64_t bits = in.U64();
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void WriteRate(ByteWriter& out, const absl::optional<double>& rate) {
  out.U8(rate ? 1 : 0);
  if (rate) WriteDouble(out, *rate);
}
absl::optional<double> ReadRate(ByteReader& in) {
  if (in.U8() == 0) return absl::nullopt;
  return ReadDouble(in);
}

// A choice as its number; one that is not known makes `known` false.
template <typename E>
void WriteChoice(ByteWriter& out, E value) {
  out.U8(static_cast<uint8_t>(value));
}
template <typename E>
E ReadChoice(ByteReader& in, E last, bool& known) {
  const uint8_t value = in.U8();
  if (value > static_cast<uint8_t>(last)) known = false;
  return known ? static_cast<E>(value) : E();
}

// What version 2 added.
void WriteDeliverySettings(ByteWriter& out, const Endpoint& endpoint) {
  const EndpointSettings& s = endpoint.settings;
  WriteChoice(out, s.body.format);
  WriteChoice(out, s.body.compression);
  WriteChoice(out, s.signature);
  out.U8(s.partial_ack ? 1 : 0);
  out.Varint(s.retry.schedule.size());
  for (const std::chrono::milliseconds delay : s.retry.schedule) out.Zigzag(delay.count());
  WriteRate(out, s.limits.requests_per_second);
  WriteRate(out, s.limits.messages_per_second);
  WriteRate(out, s.limits.bytes_per_second);
  WriteChoice(out, s.order.kind);
  out.String(s.order.key_pointer);
  WriteChoice(out, s.order.blocked);
  out.Zigzag(s.parallelism);
  out.Zigzag(s.backlog.bytes_max);
  out.Zigzag(s.backlog.age_max.count());
  WriteChoice(out, s.backlog.policy);
  out.String(s.backlog.collapse_pointer);
  out.U8(s.pause.by_customer ? 1 : 0);
  out.U8(s.pause.by_operator ? 1 : 0);
  WriteChoice(out, s.pause.resume);
  out.Zigzag(MillisSinceEpoch(s.pause.resume_from));
  out.Zigzag(MillisSinceEpoch(s.pause.resumed_at));
  WriteChoice(out, s.auth.kind);
  out.String(s.auth.name);
  out.String(s.auth.token_url);
  out.String(s.auth.scope);
  out.String(s.tls.ca_pem);
  out.String(s.tls.certificate_pem);
  out.String(endpoint.auth_sealed);
  out.String(endpoint.tls_key_sealed);
}

void ReadDeliverySettings(ByteReader& in, Endpoint* endpoint, bool& known) {
  EndpointSettings& s = endpoint->settings;
  s.body.format = ReadChoice(in, BodyFormat::kNdjson, known);
  s.body.compression = ReadChoice(in, BodyCompression::kZstd, known);
  s.signature = ReadChoice(in, SignatureScheme::kBoth, known);
  s.partial_ack = in.U8() != 0;
  const uint64_t delays = in.Varint();
  for (uint64_t i = 0; i < delays && in.ok(); ++i) s.retry.schedule.emplace_back(in.Zigzag());
  s.limits.requests_per_second = ReadRate(in);
  s.limits.messages_per_second = ReadRate(in);
  s.limits.bytes_per_second = ReadRate(in);
  s.order.kind = ReadChoice(in, OrderKind::kEndpoint, known);
  s.order.key_pointer = std::string(in.String());
  s.order.blocked = ReadChoice(in, BlockedHead::kDeadLetter, known);
  s.parallelism = static_cast<int>(in.Zigzag());
  s.backlog.bytes_max = in.Zigzag();
  s.backlog.age_max = std::chrono::milliseconds(in.Zigzag());
  s.backlog.policy = ReadChoice(in, BacklogPolicy::kCollapseByKey, known);
  s.backlog.collapse_pointer = std::string(in.String());
  s.pause.by_customer = in.U8() != 0;
  s.pause.by_operator = in.U8() != 0;
  s.pause.resume = ReadChoice(in, ResumeKind::kNewest, known);
  s.pause.resume_from = WallTimeFromMillis(in.Zigzag());
  s.pause.resumed_at = WallTimeFromMillis(in.Zigzag());
  s.auth.kind = ReadChoice(in, AuthKind::kOAuth2, known);
  s.auth.name = std::string(in.String());
  s.auth.token_url = std::string(in.String());
  s.auth.scope = std::string(in.String());
  s.tls.ca_pem = std::string(in.String());
  s.tls.certificate_pem = std::string(in.String());
  endpoint->auth_sealed = std::string(in.String());
  endpoint->tls_key_sealed = std::string(in.String());
}

void WriteEndpoint(ByteWriter& out, const Endpoint& endpoint) {
  const EndpointSettings& s = endpoint.settings;
  WriteId(out, endpoint.id);
  WriteId(out, endpoint.customer);
  out.Varint(endpoint.generation);
  out.U64(endpoint.changed_xid);
  out.Zigzag(MillisSinceEpoch(endpoint.created_at));
  out.Zigzag(MillisSinceEpoch(endpoint.updated_at));
  out.String(s.url);
  out.String(s.description);
  out.U8(s.mode == EndpointMode::kStreaming ? 1 : 0);
  out.Zigzag(s.batch.events_max);
  out.Zigzag(s.batch.bytes_max);
  out.Zigzag(s.batch.wait_max.count());
  out.Varint(s.headers.size());
  for (const auto& [name, value] : s.headers) {
    out.String(name);
    out.String(value);
  }
  out.Zigzag(s.retry.attempts);
  out.Zigzag(s.retry.horizon.count());
  out.Zigzag(s.retry.first_delay.count());
  WriteDouble(out, s.retry.factor);
  out.Zigzag(s.retry.cap.count());
  out.Zigzag(s.window_max);
  out.Zigzag(s.timeout.count());
  out.U8(s.enabled ? 1 : 0);
  out.String(endpoint.secrets_sealed);
  WriteDeliverySettings(out, endpoint);
}

Endpoint ReadEndpoint(ByteReader& in, uint8_t version, bool& known) {
  Endpoint endpoint;
  EndpointSettings& s = endpoint.settings;
  endpoint.id = ReadId<EndpointId>(in);
  endpoint.customer = ReadId<CustomerId>(in);
  endpoint.generation = in.Varint();
  endpoint.changed_xid = in.U64();
  endpoint.created_at = WallTimeFromMillis(in.Zigzag());
  endpoint.updated_at = WallTimeFromMillis(in.Zigzag());
  s.url = std::string(in.String());
  s.description = std::string(in.String());
  s.mode = in.U8() != 0 ? EndpointMode::kStreaming : EndpointMode::kBatch;
  s.batch.events_max = in.Zigzag();
  s.batch.bytes_max = in.Zigzag();
  s.batch.wait_max = std::chrono::milliseconds(in.Zigzag());
  const uint64_t headers = in.Varint();
  for (uint64_t i = 0; i < headers && in.ok(); ++i) {
    std::string name(in.String());
    s.headers.emplace_back(std::move(name), std::string(in.String()));
  }
  s.retry.attempts = static_cast<int>(in.Zigzag());
  s.retry.horizon = std::chrono::milliseconds(in.Zigzag());
  s.retry.first_delay = std::chrono::milliseconds(in.Zigzag());
  s.retry.factor = ReadDouble(in);
  s.retry.cap = std::chrono::milliseconds(in.Zigzag());
  s.window_max = static_cast<int>(in.Zigzag());
  s.timeout = std::chrono::milliseconds(in.Zigzag());
  s.enabled = in.U8() != 0;
  endpoint.secrets_sealed = std::string(in.String());
  if (version >= 2) ReadDeliverySettings(in, &endpoint, known);
  return endpoint;
}

// What version 3 added.
void WriteForgotten(ByteWriter& out, const Snapshot& snapshot) {
  const auto write_text = [&out](const absl::optional<std::string>& text) {
    out.U8(text ? 1 : 0);
    if (text) out.String(*text);
  };
  out.Varint(snapshot.erasures()->all().size());
  for (const Erasure& erasure : snapshot.erasures()->all()) {
    WriteId(out, erasure.id);
    out.U8(erasure.customer ? 1 : 0);
    if (erasure.customer) WriteId(out, *erasure.customer);
    write_text(erasure.tenant);
    write_text(erasure.event_id);
    out.Zigzag(MillisSinceEpoch(erasure.requested_at));
  }
  const std::vector<EndpointId> dead_lettered = snapshot.dead_lettered();
  out.Varint(dead_lettered.size());
  for (const EndpointId& id : dead_lettered) WriteId(out, id);
}

void ReadForgotten(ByteReader& in, SnapshotBuilder& builder) {
  const auto read_text = [&in]() -> absl::optional<std::string> {
    if (in.U8() == 0) return absl::nullopt;
    return std::string(in.String());
  };
  const uint64_t erasures = in.Varint();
  for (uint64_t i = 0; i < erasures && in.ok(); ++i) {
    Erasure erasure;
    erasure.id = ReadId<ErasureId>(in);
    if (in.U8() != 0) erasure.customer = ReadId<CustomerId>(in);
    erasure.tenant = read_text();
    erasure.event_id = read_text();
    erasure.requested_at = WallTimeFromMillis(in.Zigzag());
    if (in.ok()) builder.PutErasure(std::move(erasure));
  }
  const uint64_t dead_lettered = in.Varint();
  for (uint64_t i = 0; i < dead_lettered && in.ok(); ++i) {
    builder.PutDeadLettered(ReadId<EndpointId>(in));
  }
}

absl::Status Damaged() {
  return absl::DataLossError("registry: the snapshot file is damaged or of another version");
}

absl::Status SystemFault(absl::string_view what, const std::string& path) {
  return absl::InternalError(
      absl::StrCat("registry: ", what, " ", path, ": ", std::strerror(errno)));
}

// Writes all of it and flushes it to the disk.
absl::Status WriteAll(const std::string& path, absl::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return SystemFault("cannot create", path);
  absl::Status status;
  while (!bytes.empty() && status.ok()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      status = SystemFault("cannot write", path);
    }
  }
  if (status.ok() && ::fsync(fd) != 0) status = SystemFault("cannot flush", path);
  if (::close(fd) != 0 && status.ok()) status = SystemFault("cannot close", path);
  return status;
}

// Writes and renames; the caller holds the lock.
absl::Status Replace(const std::string& path, absl::string_view bytes) {
  const std::string fresh = path + ".new";
  absl::Status written = WriteAll(fresh, bytes);
  if (written.ok() && ::rename(fresh.c_str(), path.c_str()) != 0) {
    written = SystemFault("cannot rename into place", path);
  }
  if (!written.ok()) ::unlink(fresh.c_str());
  return written;
}

}  // namespace

std::string EncodeSnapshot(const Snapshot& snapshot) {
  ByteWriter out;
  out.Raw(kMagic);
  out.U8(kVersion);
  out.String(snapshot.pg_snapshot().ToString());
  out.Zigzag(MillisSinceEpoch(snapshot.confirmed_at()));
  out.String(snapshot.origin());

  out.Varint(snapshot.strings());
  for (StringId i = 0; i < snapshot.strings(); ++i) out.String(snapshot.StringOf(i));
  out.Varint(snapshot.event_types().size());
  for (const std::string& name : snapshot.event_types()) out.String(name);
  out.Varint(snapshot.customers().size());
  for (uint32_t i = 0; i < snapshot.customers().size(); ++i) {
    const CustomerEntry& customer = snapshot.customers()[i];
    WriteId(out, customer.id);
    out.Varint(customer.generation);
    out.U64(customer.changed_xid);
    const absl::Span<const StringId> tenants = snapshot.TenantsGranted(i);
    out.Varint(tenants.size());
    for (const StringId tenant : tenants) {
      out.Varint(tenant);
      out.U64(*snapshot.GrantXid(i, tenant));
    }
  }
  out.Varint(snapshot.endpoints().size());
  for (const auto& endpoint : snapshot.endpoints()) WriteEndpoint(out, *endpoint);
  out.Varint(snapshot.subscriptions().size());
  for (const SubscriptionEntry& subscription : snapshot.subscriptions()) {
    WriteId(out, subscription.id);
    out.Varint(subscription.endpoint_index);
    out.U8(static_cast<uint8_t>(subscription.scope));
    const auto write_all = [&](absl::Span<const StringId> ids) {
      out.Varint(ids.size());
      for (const StringId id : ids) out.Varint(id);
    };
    write_all(snapshot.EventTypesOf(subscription));
    write_all(snapshot.TenantsOf(subscription));
    write_all(snapshot.DepartmentsOf(subscription));
  }
  WriteForgotten(out, snapshot);
  const Sha256Digest digest = Sha256(out.bytes());
  out.Raw(DigestView(digest));
  return out.Take();
}

absl::StatusOr<std::shared_ptr<const Snapshot>> DecodeSnapshot(absl::string_view bytes) {
  if (!absl::StartsWith(bytes, kMagic) || bytes.size() < kMagic.size() + kDigestBytes) {
    return Damaged();
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - kDigestBytes);
  const Sha256Digest digest = Sha256(body);
  if (DigestView(digest) != bytes.substr(body.size())) return Damaged();

  ByteReader in(body.substr(kMagic.size()));
  const uint8_t version = in.U8();
  if (version < kVersionFirst || version > kVersion) return Damaged();
  const absl::optional<PgSnapshot> pg_snapshot = PgSnapshot::Parse(in.String());
  const WallTime confirmed_at = WallTimeFromMillis(in.Zigzag());
  std::string origin(in.String());
  if (!in.ok() || !pg_snapshot) return Damaged();

  std::vector<absl::string_view> strings;
  const uint64_t string_count = in.Varint();
  for (uint64_t i = 0; i < string_count && in.ok(); ++i) strings.push_back(in.String());
  bool known = true;
  const auto text = [&]() -> absl::string_view {
    const uint64_t id = in.Varint();
    if (id >= strings.size()) known = false;
    return known ? strings[static_cast<size_t>(id)] : absl::string_view();
  };

  SnapshotBuilder builder;
  const uint64_t event_types = in.Varint();
  for (uint64_t i = 0; i < event_types && in.ok(); ++i) builder.PutEventType(in.String());
  const uint64_t customers = in.Varint();
  for (uint64_t i = 0; i < customers && in.ok(); ++i) {
    const auto id = ReadId<CustomerId>(in);
    const uint64_t generation = in.Varint();
    builder.PutCustomer(id, generation, in.U64());
    const uint64_t grants = in.Varint();
    for (uint64_t g = 0; g < grants && in.ok() && known; ++g) {
      const absl::string_view tenant = text();
      builder.PutGrant(id, tenant, in.U64());
    }
  }
  std::vector<std::pair<EndpointId, CustomerId>> endpoints;
  const uint64_t endpoint_count = in.Varint();
  for (uint64_t i = 0; i < endpoint_count && in.ok() && known; ++i) {
    Endpoint endpoint = ReadEndpoint(in, version, known);
    endpoints.emplace_back(endpoint.id, endpoint.customer);
    builder.PutEndpoint(std::move(endpoint));
  }
  const uint64_t subscriptions = in.Varint();
  for (uint64_t i = 0; i < subscriptions && in.ok() && known; ++i) {
    const auto id = ReadId<SubscriptionId>(in);
    const uint64_t endpoint = in.Varint();
    const uint8_t scope = in.U8();
    if (endpoint >= endpoints.size() || scope > 2) return Damaged();
    SubscriptionSettings settings;
    settings.endpoint = endpoints[static_cast<size_t>(endpoint)].first;
    settings.scope = static_cast<ScopeKind>(scope);
    for (std::vector<std::string>* list :
         {&settings.event_types, &settings.tenants, &settings.departments}) {
      const uint64_t count = in.Varint();
      if (count > 65'535) return Damaged();
      for (uint64_t n = 0; n < count && in.ok() && known; ++n) list->emplace_back(text());
    }
    builder.PutSubscription(id, endpoints[static_cast<size_t>(endpoint)].second,
                            std::move(settings));
  }
  if (version >= 3) ReadForgotten(in, builder);
  if (!in.done() || !known) return Damaged();
  return builder.Build(*pg_snapshot, confirmed_at, std::move(origin));
}

absl::Status WriteSnapshotFile(const std::string& path, const Snapshot& snapshot) {
  // Two processes with one data directory must not write into one another's file. The lock's file
  // stays: were it removed, two could hold a lock each.
  const std::string lock = path + ".lock";
  const int lock_fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) return SystemFault("cannot create", lock);
  absl::Status written =
      ::flock(lock_fd, LOCK_EX | LOCK_NB) == 0
          ? Replace(path, EncodeSnapshot(snapshot))
          : absl::UnavailableError(absl::StrCat("registry: another process writes ", path));
  ::close(lock_fd);
  RETURN_IF_ERROR(written);
  // The renaming itself is on the disk only when the directory is.
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Snapshot>> ReadSnapshotFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("registry: no file ", path));
    return SystemFault("cannot open", path);
  }
  std::string bytes;
  absl::Status status;
  std::string piece(256 * 1024, '\0');
  while (status.ok()) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got == 0) break;
    if (got > 0) {
      bytes.append(piece.data(), static_cast<size_t>(got));
    } else if (errno != EINTR) {
      status = SystemFault("cannot read", path);
    }
  }
  ::close(fd);
  RETURN_IF_ERROR(status);
  return DecodeSnapshot(bytes);
}

}  // namespace postrider::subscriptions
