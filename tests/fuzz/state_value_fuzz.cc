#include <string>
#include <tuple>

#include "core/base/check.h"
#include "core/stream/keyed_state.h"
#include "core/stream/state_key.h"
#include "core/stream/state_table.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

void Decode(absl::string_view bytes) {
  if (const absl::optional<StateKey> key = DecodeStateKey(bytes)) {
    POSTRIDER_CHECK(EncodeStateKey(key->state, key->key, key->sub_key) == bytes);
    const ChangelogReplay::Rule rule = ReplayRuleOf(bytes);
    POSTRIDER_CHECK((rule == ChangelogReplay::Rule::kOnce) == (key->state % 2 == 1));
  }
  if (const absl::optional<StateTableEntry> entry = DecodeStateTableEntry(bytes)) {
    POSTRIDER_CHECK(EncodeStateTableEntry(*entry) == bytes);
  }
  if (const absl::optional<StatePayload> payload = DecodeStatePayload(bytes)) {
    // Numbers may be longer than we write them.
    const std::string shortest = EncodeStatePayload(*payload);
    POSTRIDER_CHECK(shortest.size() <= bytes.size());
    const absl::optional<StatePayload> again = DecodeStatePayload(shortest);
    POSTRIDER_CHECK(again && again->version == payload->version &&
                    again->expires_ms == payload->expires_ms && again->order == payload->order &&
                    again->bytes == payload->bytes);
  }
}

StateKey Key(Input& in) {
  StateKey key;
  key.state = static_cast<uint16_t>(in.UpTo(UINT16_MAX));
  key.key = std::string(in.Text());
  key.sub_key = std::string(in.Text());
  return key;
}

// The bytes sort as the parts do, and all of one key lies together.
void Order(Input in) {
  const StateKey a = Key(in);
  StateKey b = Key(in);
  if (in.Flag()) b.state = a.state;
  if (in.Flag()) b.key = a.key;
  const auto encode = [](const StateKey& key) {
    return EncodeStateKey(key.state, key.key, key.sub_key);
  };
  POSTRIDER_CHECK(DecodeStateKey(encode(a)) == a);
  const auto parts = [](const StateKey& key) { return std::tie(key.state, key.key, key.sub_key); };
  POSTRIDER_CHECK((parts(a) < parts(b)) == (encode(a) < encode(b)));
  const std::string prefix = StatePrefix(a.state, a.key);
  POSTRIDER_CHECK((encode(b).compare(0, prefix.size(), prefix) == 0) ==
                  (a.state == b.state && a.key == b.key));
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Decode(View(data, size));
  Order(Input(data, size));
  return 0;
}
