#include "loadtest/event_source.h"

#include <xxhash.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "loadtest/internal/draws.h"

namespace postrider::loadtest {
namespace {

using internal::Draws;
using internal::kDepartmentShare;

constexpr absl::string_view kWords[] = {"invoice",
                                        "shipment",
                                        "approved",
                                        "pending",
                                        "customer",
                                        "total",
                                        "amount",
                                        "created",
                                        "updated",
                                        "reference",
                                        "warehouse",
                                        "address",
                                        "street",
                                        "contact",
                                        "phone",
                                        "contract",
                                        "renewal",
                                        "quantity",
                                        "discount",
                                        "delivery",
                                        "tracking",
                                        "carrier",
                                        "insurance",
                                        "policy",
                                        "claim",
                                        "settled",
                                        "rejected",
                                        "comment",
                                        "caf\\u00e9",
                                        "stra\xc3\x9f"
                                        "e",
                                        "\\\"quoted\\\"",
                                        "line\\nbreak",
                                        "\xe2\x82\xac"
                                        "12.50",
                                        "tab\\tstop",
                                        "back\\\\slash",
                                        "1}],{"};

constexpr absl::string_view kSumName = ",\"sum\":\"";
constexpr size_t kTailSize = kSumName.size() + 16 + 2;  // 16 digits and "\"}"

// Takes `name` from the front of `rest`, then what stands before the next `end`.
bool Take(absl::string_view name, char end, absl::string_view* rest, absl::string_view* value) {
  if (rest->substr(0, name.size()) != name) return false;
  rest->remove_prefix(name.size());
  const size_t at = rest->find(end);
  if (at == absl::string_view::npos) return false;
  *value = rest->substr(0, at);
  rest->remove_prefix(at);
  return true;
}

}  // namespace

EventSource::EventSource(const Plan& plan, uint64_t seed, uint32_t size_min, uint32_t size_max)
    : plan_(&plan),
      seed_(seed),
      run_(static_cast<uint32_t>(Draws(seed, 6, 0).Next() >> 32)),
      size_min_(std::max(size_min, 300U)),
      size_max_(std::max(size_max, size_min_)) {
  Random random = Draws(seed, 7, 0);
  while (text_.size() < 65536) {
    const absl::string_view word = kWords[random.Below(std::size(kWords))];
    text_.append(word.data(), word.size());
    text_.push_back(' ');
  }
}

EventFields EventSource::At(uint64_t number) const {
  Random random = Draws(seed_, 8, number);
  EventFields event;
  event.type = static_cast<uint16_t>(random.Below(plan_->options().topics));
  event.tenant = plan_->tenant_popularity().Rank(random.Fraction());
  const auto department = static_cast<uint8_t>(random.Below(plan_->options().departments));
  event.department = random.Fraction() < kDepartmentShare ? department : kNoDepartment;
  return event;
}

void EventSource::Payload(uint64_t number, int64_t sent_us, std::string* out) const {
  const EventFields event = At(number);
  Random random = Draws(seed_, 9, number);
  const size_t size = size_min_ + random.Below(size_max_ - size_min_ + 1);
  out->clear();
  absl::StrAppend(out, R"({"n":)", number, R"(,"t":)", sent_us, R"(,"type":")",
                  plan_->TypeName(event.type), R"(","tenant":")", plan_->TenantName(event.tenant),
                  R"(","department":)");
  if (event.department == kNoDepartment) {
    out->append("null");
  } else {
    absl::StrAppend(out, "\"", Plan::DepartmentName(event.department), "\"");
  }
  out->append(R"(,"text":")");
  const size_t fixed = out->size() + 1 + kTailSize;
  const size_t wanted = size > fixed ? size - fixed : 0;
  // From the start of a word to the end of one, so that no escape or character is cut; spaces fill.
  size_t from = random.Below(text_.size() - wanted);
  while (from > 0 && text_[from - 1] != ' ') --from;
  size_t length = wanted;
  while (length > 0 && text_[from + length - 1] != ' ') --length;
  out->append(text_, from, length);
  out->append(wanted - length, ' ');
  out->push_back('"');
  const uint64_t sum = XXH3_64bits(out->data(), out->size());
  absl::StrAppend(out, kSumName, absl::Hex(sum, absl::kZeroPad16), "\"}");
}

std::string EventSource::Id(uint64_t number) const {
  return absl::StrCat("ev-", absl::Hex(run_, absl::kZeroPad8), "-", number);
}

bool ParseEventId(absl::string_view id, uint32_t* run, uint64_t* number) {
  if (id.size() < 13 || id.substr(0, 3) != "ev-" || id[11] != '-') return false;
  if (!absl::SimpleHexAtoi(id.substr(3, 8), run)) return false;
  const absl::string_view digits = id.substr(12);
  if (digits[0] < '0' || digits[0] > '9') return false;
  return absl::SimpleAtoi(digits, number);
}

bool ParsePayload(absl::string_view payload, PayloadFields* fields) {
  if (payload.size() < kTailSize) return false;
  const absl::string_view tail = payload.substr(payload.size() - kTailSize);
  const absl::string_view summed = payload.substr(0, payload.size() - kTailSize);
  const uint64_t sum = XXH3_64bits(summed.data(), summed.size());
  if (tail != absl::StrCat(kSumName, absl::Hex(sum, absl::kZeroPad16), "\"}")) return false;
  absl::string_view rest = summed;
  absl::string_view number;
  absl::string_view sent;
  if (!Take("{\"n\":", ',', &rest, &number) || !Take(",\"t\":", ',', &rest, &sent) ||
      !Take(",\"type\":\"", '"', &rest, &fields->type) ||
      !Take("\",\"tenant\":\"", '"', &rest, &fields->tenant) ||
      !Take("\",\"department\":", ',', &rest, &fields->department)) {
    return false;
  }
  if (fields->department == "null") {
    fields->department = {};
  } else if (fields->department.size() > 2) {
    fields->department = fields->department.substr(1, fields->department.size() - 2);
  }
  return absl::SimpleAtoi(number, &fields->number) && absl::SimpleAtoi(sent, &fields->sent_us);
}

}  // namespace postrider::loadtest
