#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/internal/call.h"
#include "api/internal/event_appends.h"
#include "api/internal/resources.h"
#include "api/publisher.h"
#include "core/base/id.h"
#include "core/crypto/random.h"
#include "core/json/members.h"
#include "core/json/reader.h"
#include "core/json/time_text.h"
#include "core/json/writer.h"
#include "core/stream/key_groups.h"
#include "core/stream/log.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "subscriptions/registry/customer.h"
#include "subscriptions/registry/event_type.h"
#include "subscriptions/registry/own_events.h"

namespace postrider::api {
namespace {

using subscriptions::FieldFaults;

constexpr size_t kEventsMost = 1'000;
// What the answer to a body of lines tells of those that were refused.
constexpr size_t kLineErrorsMax = 1'000;
constexpr size_t kErrorsOfALineMax = 10;  // when half of those are told, one
constexpr size_t kPointerBytesMax = 200;
constexpr size_t kHopsBytesMax = 20;
constexpr absl::string_view kNeverTaken =
    "the log can never take this event; it is most likely larger than its topic allows";

// One event of the request, as it will be appended.
struct NewEvent {
  std::string pointer;  // where it stands in the body or its line: "" or "/7"
  int64_t line = 0;     // of a body of lines
  FieldFaults faults;
  std::string id;
  std::string type;
  std::string tenant;
  absl::optional<std::string> department;
  std::string time;
  std::string data;  // as it came, byte for byte
  std::string topic;
  int32_t partition = 0;
};

absl::optional<std::string> StringValue(absl::string_view raw) {
  absl::StatusOr<JsonValue> value = JsonValue::Parse(raw);
  if (!value.ok() || !value->is_string()) return absl::nullopt;
  return *value->string();
}

// Reads the members of one event.
class EventReader {
 public:
  explicit EventReader(NewEvent* event) : event_(event), faults_(&event->faults) {}

  void Read(absl::string_view raw, size_t data_bytes_max) {
    const absl::optional<std::vector<RawMember>> members = RawMembers(raw);
    if (!members) {
      faults_->push_back({event_->pointer, "must be an object"});
      return;
    }
    bool has_data = false;
    for (const RawMember& member : *members) {
      if (!seen_.insert(member.name).second) {
        Fault(member.name, "is given twice");
      } else if (member.name == "data") {
        has_data = true;
        event_->data = std::string(member.value);
        if (event_->data.size() > data_bytes_max) {
          Fault("data", absl::StrCat("may have at most ", data_bytes_max, " bytes"));
        }
      } else if (member.name == "type") {
        Text(member, &event_->type);
      } else if (member.name == "tenant") {
        Text(member, &event_->tenant);
      } else if (member.name == "id") {
        if (member.value != "null") Text(member, &event_->id);
      } else if (member.name == "department") {
        if (member.value != "null") Text(member, &event_->department.emplace());
      } else if (member.name == "time") {
        if (member.value != "null") Time(member);
      } else {
        Fault(member.name, "is no field of this");
      }
    }
    if (!has_data) Fault("data", "is required");
    for (const absl::string_view name : {"type", "tenant"}) {
      if (!seen_.contains(name)) Fault(name, "is required");
    }
  }

 private:
  void Fault(absl::string_view name, absl::string_view detail) {
    std::string pointer = event_->pointer;
    AppendPointerStep(name, &pointer);
    faults_->push_back({std::move(pointer), std::string(detail)});
  }
  void Text(const RawMember& member, std::string* out) {
    absl::optional<std::string> text = StringValue(member.value);
    if (!text) return Fault(member.name, "must be a string");
    *out = *std::move(text);
    const std::string pointer = absl::StrCat(event_->pointer, "/", member.name);
    for (auto& fault : member.name == "type" ? subscriptions::ValidateEventType(*out, pointer)
                                             : subscriptions::ValidateTenant(*out, pointer)) {
      faults_->push_back(fault);
    }
    if (member.name == "tenant" && subscriptions::IsReservedTenant(*out)) {
      Fault(member.name, "is a tenant of Postrider's own");
    }
  }
  void Time(const RawMember& member) {
    const absl::optional<std::string> text = StringValue(member.value);
    const absl::optional<WallTime> time = text ? ParseRfc3339(*text) : absl::nullopt;
    if (!time) return Fault(member.name, "must be a time as RFC 3339 writes it");
    event_->time = FormatRfc3339(*time);
  }

  NewEvent* event_;
  FieldFaults* faults_;
  absl::flat_hash_set<std::string> seen_;
};

// A request on its way into the log.
struct Publishing : std::enable_shared_from_this<Publishing> {
  explicit Publishing(CallPtr the_call) : call(std::move(the_call)) {}

  void Start();
  // The events as they stand in the body, read; false: there are none to go on with, and it is
  // answered.
  bool ReadLines();
  bool ReadArray();
  void ReadOne(absl::string_view raw, NewEvent& event);
  // Refuses what has faults: all of an array for one of them, of lines those alone. False: nothing
  // is left, and it is answered.
  bool GoesOn();
  void FindTypes();
  void FindTopics();
  void AppendAll();
  AppendRecord RecordOf(const NewEvent& event) const;
  // Each event is stored, refused by the log, or cannot be stored now.
  void Appended();
  // Of lines: tells of those at the beginning whose fate is known. Once, for it counts them.
  void SettleLines();
  void Answer(Response response) {
    if (answered) return;
    answered = true;
    call->api.loop.CancelTimer(deadline);
    if (appends != nullptr) appends->Stop();
    call->Answer(std::move(response));
  }
  void Fail(const FieldFaults& faults) { Answer(ProblemFromFaults(faults)); }
  // The log or the database does not answer.
  void FailForNow(Response response) {
    if (lines() == nullptr) return Answer(std::move(response));
    SettleLines();
    const int64_t settled = settled_before > 0 ? settled_before - 1 : lines()->first_line - 1;
    Response told = LinesProblem(503, kNotSettled, settled);
    told.headers = std::move(response.headers);
    Answer(std::move(told));
  }
  Response NotAcknowledged() const {
    return ProblemRetry(503,
                        "Not every event was acknowledged. Some or all of them may have been "
                        "stored, or may still be. Publish them again with the same `id`, by which "
                        "receivers can tell a repeat.",
                        std::chrono::seconds(1));
  }
  static constexpr absl::string_view kNotSettled =
      "Lines up to `lines_settled` are stored, or refused in `errors`; it is not known of those "
      "that "
      "follow. Publish these again with the same `id`, by which receivers can tell a repeat.";
  // Null: the body is not one of lines.
  LineStream* lines() const { return call->request.lines.get(); }
  Response LinesProblem(int status, absl::string_view detail, int64_t settled) const {
    JsonValue members = JsonValue::MakeObject();
    TellLines(*lines(), settled, &members);
    return ProblemWith(status, detail, members);
  }
  void RefuseLine(const NewEvent& event);
  void EndLines();

  const CallPtr call;
  std::vector<NewEvent> events;
  absl::flat_hash_map<std::string, int32_t> partitions;  // by topic
  size_t waiting = 0;
  absl::Status failure;
  std::shared_ptr<EventAppends> appends;
  int64_t settled_before = 0;  // of lines: the first whose fate is open; 0: it is not known
  bool answered = false;
  TimerId deadline = 0;
};

bool Allowed(const std::vector<std::string>& patterns, absl::string_view type) {
  return std::any_of(patterns.begin(), patterns.end(), [type](const std::string& pattern) {
    return subscriptions::ParseEventTypePattern(pattern).Matches(type);
  });
}

void Publishing::Start() {
  if (lines() != nullptr && lines()->end != LineStream::End::kNotYet) return EndLines();
  if (lines() != nullptr ? !ReadLines() : !ReadArray()) return;
  call->request.body.clear();
  if (!GoesOn()) return;
  const Publisher& publisher = call->api.publisher;
  const Principal& principal = call->request.principal;
  const absl::flat_hash_set<std::string> tenants(principal.tenants.begin(),
                                                 principal.tenants.end());
  for (NewEvent& event : events) {
    if (!Allowed(principal.event_types, event.type) ||
        (!tenants.contains("*") && !tenants.contains(event.tenant))) {
      std::string detail =
          absl::StrCat("This key may not publish the type or the tenant of ",
                       event.pointer.empty() ? "the event" : "event ", event.pointer);
      if (lines() == nullptr) return Answer(Problem(403, detail));
      event.faults.push_back({"", std::move(detail)});
      continue;
    }
    absl::StatusOr<std::string> topic = publisher.TopicOf(event.type);
    if (topic.ok()) {
      event.topic = *std::move(topic);
    } else {
      event.faults.push_back({event.pointer + "/type", std::string(topic.status().message())});
    }
  }
  if (!GoesOn()) return;
  deadline = call->api.loop.CallAfter(
      publisher.options().answer_within,
      [self = shared_from_this()] { self->FailForNow(self->NotAcknowledged()); });
  FindTypes();
}

bool Publishing::ReadArray() {
  if (absl::Status proof = ProveOneJsonValue(call->request.body); !proof.ok()) {
    Answer(Problem(400, absl::StrCat("The body is not one JSON value: ", proof.message())));
    return false;
  }
  const absl::optional<std::vector<absl::string_view>> elements = RawElements(call->request.body);
  if (elements && (elements->empty() || elements->size() > kEventsMost)) {
    Fail({{"", absl::StrCat("must have 1 to ", kEventsMost, " events")}});
    return false;
  }
  events.resize(elements ? elements->size() : 1);
  for (size_t i = 0; i < events.size(); ++i) {
    if (elements) events[i].pointer = absl::StrCat("/", i);
    ReadOne(elements ? (*elements)[i] : absl::string_view(call->request.body), events[i]);
  }
  return true;
}

bool Publishing::ReadLines() {
  int64_t number = lines()->first_line;
  for (absl::string_view line : absl::StrSplit(call->request.body, '\n')) {
    const int64_t mine = number++;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    NewEvent& event = events.emplace_back();
    event.line = mine;
    if (absl::Status proof = ProveOneJsonValue(line); !proof.ok()) {
      event.faults.push_back({"", absl::StrCat("is not one JSON value: ", proof.message())});
    } else {
      ReadOne(line, event);
    }
  }
  if (!events.empty()) return true;
  Answer(JsonResponse(kLinesGoOn, JsonValue::MakeObject()));
  return false;
}

void Publishing::ReadOne(absl::string_view raw, NewEvent& event) {
  EventReader(&event).Read(raw, call->api.publisher.options().event_bytes_max);
  if (event.id.empty()) {
    const IdBytes bytes = NewIdBytes(call->api.clock);
    event.id = absl::StrCat(
        "evt_", EncodeBase32({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
  if (event.time.empty()) event.time = FormatRfc3339(call->api.clock.Wall());
}

bool Publishing::GoesOn() {
  FieldFaults faults;
  if (lines() == nullptr) {
    for (NewEvent& event : events) {
      faults.insert(faults.end(), event.faults.begin(), event.faults.end());
    }
    if (!faults.empty()) Fail(faults);
    return faults.empty();
  }
  const auto refused = std::stable_partition(
      events.begin(), events.end(), [](const NewEvent& event) { return event.faults.empty(); });
  for (auto event = refused; event != events.end(); ++event) RefuseLine(*event);
  events.erase(refused, events.end());
  if (events.empty()) Answer(JsonResponse(kLinesGoOn, JsonValue::MakeObject()));
  return !events.empty();
}

void Publishing::RefuseLine(const NewEvent& event) {
  ++lines()->refused;
  const bool many = lines()->errors.array()->size() >= kLineErrorsMax / 2;
  const size_t most = many ? 1 : kErrorsOfALineMax;
  for (size_t i = 0; i < event.faults.size() && i < most; ++i) {
    if (lines()->errors.array()->size() >= kLineErrorsMax) return;
    JsonValue error = JsonValue::MakeObject({{"line", event.line}});
    std::string pointer = event.faults[i].pointer.substr(0, kPointerBytesMax);
    // Not within a character.
    while (!IsUtf8(pointer)) pointer.pop_back();
    error.Set("pointer", std::move(pointer));
    error.Set("detail", event.faults[i].detail);
    lines()->errors.Append(std::move(error));
  }
}

void Publishing::EndLines() {
  const int64_t settled = lines()->first_line - 1;
  if (lines()->end == LineStream::End::kCut) {
    const int status = lines()->cut.status;
    Response told = LinesProblem(status, lines()->cut.detail, settled);
    if (status == 503) told.headers.emplace_back("retry-after", "1");
    return Answer(std::move(told));
  }
  if (lines()->refused > 0) {
    return Answer(LinesProblem(
        422, "The lines that `errors` names were refused; all others are stored.", settled));
  }
  Answer(JsonResponse(
      202, JsonValue::MakeObject(
               {{"accepted", lines()->accepted}, {"refused", 0}, {"lines_settled", settled}})));
}

void Publishing::FindTypes() {
  absl::flat_hash_set<std::string> types;
  for (const NewEvent& event : events) types.insert(event.type);
  call->api.publisher.FindUnregistered(
      std::vector<std::string>(types.begin(), types.end()),
      [self = shared_from_this()](absl::StatusOr<std::vector<std::string>> missing) {
        if (self->answered) return;
        if (!missing.ok()) return self->FailForNow(ProblemFromStatus(missing.status()));
        const absl::flat_hash_set<std::string> unknown(missing->begin(), missing->end());
        for (NewEvent& event : self->events) {
          if (unknown.contains(event.type)) {
            event.faults.push_back({event.pointer + "/type", "is no registered event type"});
          }
        }
        if (self->GoesOn()) self->FindTopics();
      });
}

void Publishing::FindTopics() {
  absl::flat_hash_set<std::string> topics;
  for (const NewEvent& event : events) topics.insert(event.topic);
  waiting = topics.size();
  for (const std::string& topic : topics) {
    call->api.publisher.FindPartitions(
        topic, [self = shared_from_this(), topic](absl::StatusOr<int32_t> count) {
          if (count.ok()) {
            self->partitions[topic] = *count;
          } else if (!absl::IsNotFound(count.status())) {
            self->failure = count.status();
          }
          if (--self->waiting != 0 || self->answered) return;
          if (!self->failure.ok()) return self->FailForNow(ProblemFromStatus(self->failure));
          for (NewEvent& event : self->events) {
            if (self->partitions.contains(event.topic)) continue;
            event.faults.push_back({event.pointer + "/type",
                                    absl::StrCat("has no topic: create ", event.topic,
                                                 " in the log, or switch api.create_topics on")});
          }
          if (self->GoesOn()) self->AppendAll();
        });
  }
}

AppendRecord Publishing::RecordOf(const NewEvent& event) const {
  AppendRecord record;
  record.topic = event.topic;
  record.partition = event.partition;
  record.key = event.tenant;
  record.value = event.data;
  record.headers.emplace_back("tenant", event.tenant);
  if (event.department) record.headers.emplace_back("department", *event.department);
  record.headers.emplace_back("id", event.id);
  record.headers.emplace_back("time", event.time);
  // Of all that one publishes with it: the matcher reads what it says.
  if (const std::string* hops = call->request.Header(subscriptions::kHopsHeader)) {
    record.headers.emplace_back(std::string(subscriptions::kHopsHeader),
                                hops->substr(0, kHopsBytesMax));
  }
  return record;
}

void Publishing::AppendAll() {
  for (NewEvent& event : events) {
    event.partition = KeyGroupOf(event.tenant, 0, partitions[event.topic]);
  }
  appends = std::make_shared<EventAppends>(
      events.size(), [this](size_t i) { return RecordOf(events[i]); },
      [&publisher = call->api.publisher](AppendRecord record, ProducerOptions::Batches batches,
                                         LogProducer::AppendDone done) {
        return publisher.Append(std::move(record), batches, std::move(done));
      });
  appends->Start([self = shared_from_this()] { self->Appended(); });
}

void Publishing::Appended() {
  if (answered) return;
  if (!appends->failure().ok()) return FailForNow(NotAcknowledged());
  if (lines() != nullptr) {
    SettleLines();
    return Answer(JsonResponse(kLinesGoOn, JsonValue::MakeObject()));
  }
  JsonValue rows = JsonValue::MakeArray();
  JsonValue errors = JsonValue::MakeArray();
  for (size_t i = 0; i < events.size(); ++i) {
    const NewEvent& event = events[i];
    if (appends->entries()[i].fate == EventAppends::Fate::kRefused) {
      errors.Append(JsonValue::MakeObject({{"pointer", event.pointer}, {"detail", kNeverTaken}}));
      continue;
    }
    rows.Append(JsonValue::MakeObject({{"id", event.id},
                                       {"topic", event.topic},
                                       {"partition", event.partition},
                                       {"offset", appends->entries()[i].offset}}));
  }
  if (!errors.array()->empty()) {
    return Answer(ProblemWith(
        422,
        "The log cannot take the events that `errors` names; all others are "
        "stored.",
        JsonValue::MakeObject({{"errors", std::move(errors)}, {"data", std::move(rows)}})));
  }
  Answer(JsonResponse(202, JsonValue::MakeObject({{"data", std::move(rows)}})));
}

void Publishing::SettleLines() {
  if (appends == nullptr) return;
  for (size_t i = 0; i < events.size(); ++i) {
    switch (appends->entries()[i].fate) {
      case EventAppends::Fate::kOpen:
        settled_before = events[i].line;
        return;
      case EventAppends::Fate::kStored:
        ++lines()->accepted;
        break;
      case EventAppends::Fate::kRefused:
        events[i].faults.push_back({"", std::string(kNeverTaken)});
        RefuseLine(events[i]);
        break;
    }
  }
}

void Publish(CallPtr call) { std::make_shared<Publishing>(std::move(call))->Start(); }

}  // namespace

void AddEventRoutes(const ApiParts& parts, Router* router) {
  router->Add(
      {.method = HttpMethod::kPost,
       .path = "/v1/events",
       .scope = RequiredScope::kPublisher,
       .handler = Handle(parts, Publish),
       .operation_id = "publishEvents",
       .summary = "Publish one event, an array or lines of them; answers when all are stored",
       .body_bytes_max = kBodyBytesMax,
       .takes_lines = true,
       .takes_idempotency_key = false,  // events have ids of their own
       .request_schema = "EventsInput",
       .response_schema = "EventsPublished",
       .success_status = 202});
}

}  // namespace postrider::api
