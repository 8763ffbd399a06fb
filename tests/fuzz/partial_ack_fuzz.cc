#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/json/reader.h"
#include "delivery/partial_ack.h"
#include "subscriptions/dispatch/dispatch_record.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

using delivery::AckReading;
using delivery::PartialAck;
using delivery::ReadPartialAck;
using subscriptions::OrderKind;

std::vector<IdBytes> Ids(size_t count) {
  std::vector<IdBytes> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i][15] = static_cast<uint8_t>(i + 1);
  return ids;
}

void CheckPlaces(const std::vector<size_t>& places, size_t batch_size) {
  for (size_t i = 0; i < places.size(); ++i) {
    POSTRIDER_CHECK(places[i] < batch_size && (i == 0 || places[i - 1] < places[i]));
  }
}

// Whatever a receiver writes: places of this batch in order, and nothing of what is no JSON.
void Read(absl::string_view body, const std::vector<IdBytes>& ids) {
  const PartialAck ack = ReadPartialAck(body, false, ids);
  CheckPlaces(ack.failed, ids.size());
  if (ack.reading == AckReading::kReadable) {
    POSTRIDER_CHECK(ProveJson(body) == JsonProof::kProven);
  } else {
    POSTRIDER_CHECK(ack.reading == AckReading::kUnreadable);
    POSTRIDER_CHECK(ack.failed.empty() && ack.foreign == 0);
  }
  POSTRIDER_CHECK(ReadPartialAck(body, true, ids).reading == AckReading::kUnreadable);
}

// What a well-meaning one writes is understood, and orders block what came after.
void Write(Input in, const std::vector<IdBytes>& ids) {
  std::vector<size_t> wanted;
  size_t foreign = 0;
  std::string body = "{\"failed\":[";
  for (uint64_t left = in.UpTo(12); left > 0; --left) {
    if (body.back() != '[') body += ',';
    const size_t place = in.UpTo(2 * ids.size());
    if (in.Flag()) {
      absl::StrAppend(&body, place);
    } else {
      IdBytes id{};
      id[15] = static_cast<uint8_t>(place + 1);
      absl::StrAppend(&body, "\"", subscriptions::FormatMessageId(id), "\"");
    }
    if (place < ids.size()) {
      wanted.push_back(place);
    } else {
      ++foreign;
    }
  }
  body += "]}";
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  const PartialAck ack = ReadPartialAck(body, false, ids);
  POSTRIDER_CHECK(ack.reading == AckReading::kReadable);
  POSTRIDER_CHECK(ack.failed == wanted && ack.foreign == foreign);

  const auto key_of = [](size_t place) { return uint64_t{place % 3}; };
  for (const OrderKind order : {OrderKind::kNone, OrderKind::kKey, OrderKind::kEndpoint}) {
    const std::vector<size_t> rest =
        delivery::Unacknowledged(ack.failed, ids.size(), order, key_of);
    CheckPlaces(rest, ids.size());
    POSTRIDER_CHECK(std::includes(rest.begin(), rest.end(), wanted.begin(), wanted.end()));
    for (size_t place = 0; place < ids.size(); ++place) {
      bool blocked = false;
      for (const size_t failed : wanted) {
        const bool same = order == OrderKind::kEndpoint ||
                          (order == OrderKind::kKey && key_of(failed) == key_of(place));
        blocked = blocked || failed == place || (failed < place && same);
      }
      POSTRIDER_CHECK(blocked == std::binary_search(rest.begin(), rest.end(), place));
    }
  }
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  const auto ids = Ids(8);
  Read(View(data, size), ids);
  Write(Input(data, size), ids);
  return 0;
}
