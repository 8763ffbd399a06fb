#include <string>

#include "absl/strings/str_cat.h"
#include "api/api_key.h"
#include "core/base/check.h"
#include "core/base/id.h"
#include "core/crypto/digest.h"
#include "subscriptions/registry/ids.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

constexpr absl::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";

std::string Letters(Input& in, size_t count) {
  std::string text;
  while (text.size() < count) text.push_back(kAlphabet[in.Byte() % kAlphabet.size()]);
  return text;
}

std::string Write(absl::string_view id, absl::string_view secret) {
  const Sha256Digest digest = Sha256({"postrider api key ", id, "_", secret});
  return absl::StrCat("pr_", id, "_", secret, EncodeBase32(DigestView(digest).substr(0, 4)));
}

void Parse(absl::string_view text) {
  const absl::optional<api::KeyText> key = api::ParseKeyText(text);
  if (key) POSTRIDER_CHECK(Write(key->key_id, key->secret) == text);
}

// A key that was made is read; with one letter changed, cut off or added it is not.
void MakeAndParse(Input in) {
  const std::string id = Letters(in, 12);
  const std::string secret = Letters(in, 52);
  const std::string text = Write(id, secret);
  const absl::optional<api::KeyText> key = api::ParseKeyText(text);
  POSTRIDER_CHECK(key && key->key_id == id && key->secret == secret);
  std::string wrong = text;
  const size_t at = static_cast<size_t>(in.UpTo(wrong.size() - 1));
  const auto other = static_cast<char>(in.Byte());
  if (other != wrong[at]) {
    wrong[at] = other;
    POSTRIDER_CHECK(!api::ParseKeyText(wrong).has_value());
  }
  POSTRIDER_CHECK(!api::ParseKeyText(absl::StrCat(text, "0")).has_value());
  POSTRIDER_CHECK(!api::ParseKeyText(text.substr(1)).has_value());
  POSTRIDER_CHECK(!api::ParseKeyText(text.substr(0, text.size() - 1)).has_value());
}

// Ids of things, in both of their forms.
void Ids(absl::string_view text, Input in) {
  using subscriptions::EndpointId;
  if (const absl::optional<EndpointId> id = EndpointId::Parse(text)) {
    POSTRIDER_CHECK(EndpointId::Parse(id->ToString()) == id);
  }
  if (const absl::optional<EndpointId> id = EndpointId::FromUuid(text)) {
    POSTRIDER_CHECK(EndpointId::FromUuid(id->ToUuid()) == id);
  }
  const EndpointId id = in.IdOf<EndpointId>();
  POSTRIDER_CHECK(EndpointId::Parse(id.ToString()) == id);
  POSTRIDER_CHECK(EndpointId::FromUuid(id.ToUuid()) == id);
  POSTRIDER_CHECK(!subscriptions::CustomerId::Parse(id.ToString()).has_value());
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider::fuzz;
  Parse(View(data, size));
  MakeAndParse(Input(data, size));
  Ids(View(data, size), Input(data, size));
  return 0;
}
