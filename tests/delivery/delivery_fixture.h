#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/event_loop.h"
#include "core/base/metrics.h"
#include "core/crypto/key_ring.h"
#include "delivery/backlog_state.h"
#include "delivery/delivery_program.h"
#include "delivery/endpoint_function.h"
#include "dlq/letters/dead_letter_record.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/endpoint_secrets.h"
#include "subscriptions/registry/snapshot.h"
#include "tests/fakes/fake_http_sink.h"
#include "tests/fakes/fake_result_sink.h"
#include "tests/fakes/fake_task_context.h"

namespace postrider::delivery {

// The shard's producer, which keeps what it is given. Functions emit through their context; this
// one is used by what has outlived them.
class KeepingProducer final : public LogProducer {
 public:
  bool Append(AppendRecord&& record, AppendDone&&) override {
    appended.push_back(std::move(record));
    return true;
  }
  void SetRoomCallback(absl::AnyInvocable<void()>) override {}
  size_t pending() const override { return 0; }
  void Poll() override {}
  void Flush() override {}

  std::vector<AppendRecord> appended;
};

inline IdBytes Bytes(uint8_t last) {
  IdBytes bytes{};
  bytes[15] = last;
  return bytes;
}

// Of the fixture's endpoint: 32 bytes of digits.
inline constexpr char kSecret[] = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
// Its public key: whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=
inline constexpr char kPrivateKey[] =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

// One endpoint's function, with a sink and changelogs that answer when the test says so, and its
// lives one after the other.
class DeliveryFixture : public testing::Test {
 protected:
  DeliveryFixture() : keys_(*KeyRing::Parse(KeyRing::NewKeyLine("k1"))), metrics_(all_metrics_) {
    lives_.push_back(std::make_unique<FakeTaskContext>());
    loop_ = *EventLoop::Create(ctx().clock());
    ctx().manual_clock().SetWall(WallTimeFromMillis(1'900'000'000'000));
    MakeProgram();
    settings_.url = "http://receiver.example/hook";
    settings_.retry.first_delay = std::chrono::milliseconds(100);
  }

  ~DeliveryFixture() override {
    Stop();
    EndRequests();
  }

  FakeTaskContext& ctx() { return *lives_.back(); }
  EndpointFunction& function() { return static_cast<EndpointFunction&>(*function_); }

  // What is still under way, as no loop of the program's answers it.
  void EndRequests() {
    sink_->AbortAll();
    sink_->DeliverAborts();
  }

  void MakeProgram() {
    if (program_ != nullptr) EndRequests();
    auto sink = std::make_unique<FakeHttpSink>();
    sink_ = sink.get();
    options_.durable_backlog = true;
    if (!unproven_brake_) options_.unproven_interval = Duration::zero();
    program_ = std::make_unique<DeliveryProgram>(ShardEnvironment{*loop_, producer_, 0, results_},
                                                 options_, std::move(sink), keys_, metrics_, 7);
  }

  void Start() {
    function_ = program_->CreateFunction({"dispatch", 0});
    ASSERT_TRUE(function_->Open(ctx()).ok());
    function_->OnRestored(ctx(), kEndpointChangelog);
    function_->OnRestored(ctx(), kBacklogChangelog);
    function_->OnResume(ctx());
  }
  void Stop(KeyedProcessFunction::CloseReason reason = KeyedProcessFunction::CloseReason::kEnded) {
    if (function_ == nullptr) return;
    ctx().Close(*function_, reason);
    sink_->DeliverAborts();
    function_.reset();
  }

  // The next owner, whose changelogs hold what the former life's had acknowledged: at first the
  // endpoint state alone is restored. Its clock goes on where the last one's stood.
  void BeginNextLife(
      KeyedProcessFunction::CloseReason reason = KeyedProcessFunction::CloseReason::kEnded) {
    for (const size_t index : {kEndpointChangelog, kBacklogChangelog}) {
      ScriptedChangelog& changelog = ctx().changelog(index);
      changelog.log.resize(changelog.acknowledged());
      std::vector<EncodedChangelogRecord>& log = logs_[index];
      log.insert(log.end(), changelog.log.begin(), changelog.log.end());
    }
    const WallTime wall = ctx().clock().Wall();
    const MonotonicTime now = ctx().clock().Now();
    const uint64_t epoch = ctx().epoch();
    Stop(reason);
    lives_.push_back(std::make_unique<FakeTaskContext>());
    ctx().manual_clock().Advance(now - ctx().clock().Now());
    ctx().manual_clock().SetWall(wall);
    ctx().set_epoch(epoch + 1);
    ctx().BeginRestore(kEndpointChangelog);
    ctx().BeginRestore(kBacklogChangelog);
    function_ = program_->CreateFunction({"dispatch", 0});
    ASSERT_TRUE(function_->Open(ctx()).ok());
    ctx().RestoreRecords(kEndpointChangelog, logs_[kEndpointChangelog]);
    ctx().EndRestore(kEndpointChangelog);
    function_->OnRestored(ctx(), kEndpointChangelog);
  }
  void RestoreBacklog() {
    ctx().RestoreRecords(kBacklogChangelog, logs_[kBacklogChangelog]);
    ctx().EndRestore(kBacklogChangelog);
    function_->OnRestored(ctx(), kBacklogChangelog);
  }
  void NextLife() {
    BeginNextLife();
    function_->OnResume(ctx());
    RestoreBacklog();
  }

  subscriptions::Endpoint MakeEndpoint(subscriptions::EndpointId id,
                                       const subscriptions::EndpointSettings& settings) {
    subscriptions::Endpoint endpoint;
    endpoint.id = id;
    endpoint.customer = customer_;
    endpoint.settings = settings;
    endpoint.generation = generation_;
    endpoint.changed_xid = 1;
    std::vector<subscriptions::EndpointSecret> secrets = secrets_;
    if (secrets.empty()) secrets = {{kSecret, ctx().clock().Wall(), {}, kPrivateKey}};
    endpoint.secrets_sealed = *subscriptions::SealEndpointSecrets(keys_, customer_, id, secrets);
    if (id == endpoint_ && !auth_secret_.empty()) {
      endpoint.auth_sealed = subscriptions::SealSetting(
          keys_, customer_, id, subscriptions::SealedSetting::kAuth, auth_secret_);
    }
    if (id == endpoint_ && !tls_key_.empty()) {
      endpoint.tls_key_sealed = subscriptions::SealSetting(
          keys_, customer_, id, subscriptions::SealedSetting::kTlsKey, tls_key_);
    }
    return endpoint;
  }

  // A snapshot with the endpoint (and others) and its grants, as transaction `xid` left them.
  void Publish(uint64_t xid = 10) {
    subscriptions::SnapshotBuilder builder(snapshot_,
                                           subscriptions::SnapshotBuilder::Start::kNothing);
    builder.PutCustomer(customer_, 1, 1);
    for (const std::string& tenant : granted_) builder.PutGrant(customer_, tenant, 1);
    for (const subscriptions::Erasure& erasure : erasures_) builder.PutErasure(erasure);
    if (dead_lettered_) builder.PutDeadLettered(endpoint_);
    if (endpoint_exists_) builder.PutEndpoint(MakeEndpoint(endpoint_, settings_));
    for (const auto& [id, settings] : others_) builder.PutEndpoint(MakeEndpoint(id, settings));
    snapshot_ = builder.Build(*subscriptions::PgSnapshot::Parse(absl::StrCat(xid, ":", xid, ":")),
                              ctx().clock().Wall(), "origin");
    program_->SetSnapshot(snapshot_);
  }

  subscriptions::DispatchRecord MakeRecord(int64_t number) {
    subscriptions::DispatchRecord record;
    record.identity.source_topic = "events.order.created";
    record.identity.source_offset = number;
    record.identity.endpoint = endpoint_;
    record.customer = customer_;
    record.event_id = absl::StrCat("e", number);
    record.message_id = subscriptions::MakeMessageId(record.identity, record.event_id);
    record.type = "order.created";
    record.tenant = "t1";
    record.event_time = ctx().clock().Wall();
    record.dispatch_time = ctx().clock().Wall();
    record.endpoint_xid = 1;
    record.grants_xid = 1;
    record.data = absl::StrCat("{\"n\":", number, "}");
    return record;
  }

  void Deliver(const subscriptions::DispatchRecord& record) { DeliverAt(next_offset_++, record); }
  void DeliverAt(int64_t offset, const subscriptions::DispatchRecord& record) {
    OwnedRecord owned;
    owned.topic = "dispatch";
    owned.offset = offset;
    owned.key = subscriptions::EncodeDispatchKey({record.identity.endpoint, record.part});
    owned.value = subscriptions::EncodeDispatchRecord(record);
    function_->OnElement(ctx(), owned.View());
  }
  void Deliver(int64_t first, int64_t last) {
    for (int64_t n = first; n <= last; ++n) Deliver(MakeRecord(n));
  }
  void Turn() { program_->OnTurnEnd(); }
  void Advance(Duration by) {
    ctx().manual_clock().Advance(by);
    ctx().FireTimers(*function_);
    Turn();
  }
  // Turns until nothing more is sent.
  void SendAll() {
    for (size_t before = ~size_t{0}; before != sink_->size();) {
      before = sink_->size();
      Turn();
    }
  }
  // Writes are acknowledged, and what they make possible is done.
  void Settle() { ctx().AcknowledgeWrites(); }
  // The endpoint is paused, and its first entry there: so that the next one finds has_backlog set.
  void BeginPaused() {
    settings_.pause.by_customer = true;
    Publish();
    Start();
    Deliver(MakeRecord(1'000'000));
    Settle();
    ASSERT_EQ(BacklogMessages(), 1u);
  }
  double Backlogged() const { return metrics_.backlog_messages.value(); }
  uint64_t BacklogMessages() const {
    return static_cast<uint64_t>(metrics_.backlog_messages.value());
  }
  uint64_t BacklogBytes() const { return static_cast<uint64_t>(metrics_.backlog_bytes.value()); }
  // The event ids of a request's messages, in order.
  static std::vector<std::string> EventIds(const FakeHttpSink::Sent& sent) {
    std::vector<std::string> ids;
    const std::string mark = "\"event_id\":\"";
    const std::string& body = sent.request.body;
    for (size_t at = body.find(mark); at != std::string::npos; at = body.find(mark, at)) {
      at += mark.size();
      ids.push_back(body.substr(at, body.find('"', at) - at));
    }
    return ids;
  }
  dlq::DeadLetterRecord Letter(size_t index) {
    return *dlq::DecodeDeadLetter(ctx().emitted().at(index).record.value);
  }

  subscriptions::CustomerId customer_{Bytes(1)};
  subscriptions::EndpointId endpoint_{Bytes(2)};
  std::vector<std::string> granted_{"t1"};
  bool endpoint_exists_ = true;
  bool dead_lettered_ = false;  // its backlog, when it is deleted
  std::vector<subscriptions::Erasure> erasures_;
  subscriptions::EndpointSettings settings_;
  uint64_t generation_ = 1;
  std::vector<std::pair<subscriptions::EndpointId, subscriptions::EndpointSettings>> others_;
  std::vector<subscriptions::EndpointSecret> secrets_;  // empty: one that does not end
  std::string auth_secret_;                             // empty: none
  std::string tls_key_;                                 // likewise
  int64_t next_offset_ = 0;
  DeliveryOptions options_;                                  // of programs that are made
  std::shared_ptr<const subscriptions::Snapshot> snapshot_;  // the last one
  bool unproven_brake_ = false;  // whether who has never answered is sent to once a second only

  std::vector<std::unique_ptr<FakeTaskContext>> lives_;
  std::vector<EncodedChangelogRecord> logs_[2];
  KeyRing keys_;
  std::unique_ptr<EventLoop> loop_;
  KeepingProducer producer_;
  FakeResultSink results_;
  Metrics all_metrics_;
  DeliveryMetrics metrics_;
  FakeHttpSink* sink_ = nullptr;
  std::unique_ptr<DeliveryProgram> program_;
  std::unique_ptr<KeyedProcessFunction> function_;
};

}  // namespace postrider::delivery
