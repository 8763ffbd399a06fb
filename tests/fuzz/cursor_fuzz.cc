#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/internal/listing.h"
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

void SealAndOpen(Input in) {
  const api::CursorScope scope{std::string(in.Text()), std::string(in.Text()),
                               std::string(in.Text())};
  const absl::string_view after = in.Text();
  const std::string cursor = api::SealCursor(Keys(), scope, after);
  POSTRIDER_CHECK(api::OpenCursor(Keys(), scope, cursor) == std::string(after));
  // Nor is a boundary between two parts of the scope to be moved.
  for (int part = 0; part < 3; ++part) {
    api::CursorScope other = scope;
    (part == 0 ? other.list : part == 1 ? other.filter : other.owner) += 'x';
    POSTRIDER_CHECK(!api::OpenCursor(Keys(), other, cursor).has_value());
  }
  if (!scope.filter.empty()) {
    const api::CursorScope moved{scope.list + scope.filter[0], scope.filter.substr(1), scope.owner};
    POSTRIDER_CHECK(!api::OpenCursor(Keys(), moved, cursor).has_value());
  }
  std::string sealed;
  POSTRIDER_CHECK(absl::WebSafeBase64Unescape(cursor, &sealed));
  const size_t at = static_cast<size_t>(in.UpTo(sealed.size() - 1));
  std::string changed = sealed;
  changed[at] = static_cast<char>(changed[at] ^ (1 << (in.Byte() % 8)));
  std::string text;
  absl::WebSafeBase64Escape(changed, &text);
  POSTRIDER_CHECK(!api::OpenCursor(Keys(), scope, text).has_value());
  absl::WebSafeBase64Escape(sealed.substr(0, at), &text);
  POSTRIDER_CHECK(!api::OpenCursor(Keys(), scope, text).has_value());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  const absl::string_view text = View(data, size);
  // Nobody makes one without the key.
  POSTRIDER_CHECK(!api::OpenCursor(Keys(), api::CursorScope{"list", "", ""}, text).has_value());
  POSTRIDER_CHECK(!Keys().Open(text, SealContext{"cursor", "list", "", ""}).ok());
  const absl::StatusOr<KeyRing> keys = KeyRing::Parse(text);
  if (keys.ok()) POSTRIDER_CHECK(!keys->active_key_id().empty());
  SealAndOpen(Input(data, size));
  return 0;
}
