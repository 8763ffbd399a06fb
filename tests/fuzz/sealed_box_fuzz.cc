#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/crypto/key_ring.h"
#include "core/crypto/sealed_box.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

const KeyRing& Keys() {
  static const KeyRing& keys =
      *new KeyRing(*KeyRing::Parse(absl::StrCat("k1:", absl::Base64Escape(std::string(32, 'k')))));
  return keys;
}

bool Opens(absl::string_view sealed, const SealContext& context) {
  const absl::StatusOr<std::string> plain = Keys().Open(sealed, context);
  POSTRIDER_CHECK(plain.ok() || absl::IsDataLoss(plain.status()) ||
                  absl::IsNotFound(plain.status()));
  return plain.ok();
}

// Table, column, row, customer.
using Place = std::array<std::string, 4>;
SealContext ContextOf(const Place& place) {
  return SealContext{place[0], place[1], place[2], place[3]};
}

void SealAndOpen(Input in) {
  Place place;
  for (std::string& part : place) part = std::string(in.Text());
  const SealContext context = ContextOf(place);
  const absl::string_view plain = in.Text();
  const std::string sealed = Keys().Seal(plain, context);
  const absl::StatusOr<std::string> opened = Keys().Open(sealed, context);
  POSTRIDER_CHECK(opened.ok() && *opened == plain);
  // At no other place, nor where the boundary between two parts of the place is moved.
  for (size_t part = 0; part < place.size(); ++part) {
    Place other = place;
    other[part] += 'x';
    POSTRIDER_CHECK(!Opens(sealed, ContextOf(other)));
    if (part == 0 || place[part].empty()) continue;
    other = place;
    other[part - 1] += other[part].front();
    other[part].erase(0, 1);
    POSTRIDER_CHECK(!Opens(sealed, ContextOf(other)));
  }
  const auto at = static_cast<size_t>(in.UpTo(sealed.size() - 1));
  std::string changed = sealed;
  changed[at] = static_cast<char>(changed[at] ^ (1 << (in.Byte() % 8)));
  POSTRIDER_CHECK(!Opens(changed, context));
  POSTRIDER_CHECK(!Opens(absl::string_view(sealed).substr(0, at), context));
  POSTRIDER_CHECK(!Opens(sealed + '\0', context));
}

}  // namespace
}  // namespace postrider::fuzz

// Cursors, secrets and stored answers are all sealed in this way.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  const absl::string_view text = View(data, size);
  // Nobody makes one without the key.
  POSTRIDER_CHECK(!Opens(text, SealContext{"cursor", "list", "", ""}));
  const absl::StatusOr<KeyRing> keys = KeyRing::Parse(text);
  if (keys.ok()) POSTRIDER_CHECK(!keys->active_key_id().empty());
  SealAndOpen(Input(data, size));
  return 0;
}
