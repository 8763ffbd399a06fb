#include <algorithm>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/json/json.h"
#include "core/json/members.h"
#include "core/json/reader.h"
#include "tests/fuzz/input.h"

namespace postrider::fuzz {
namespace {

// RFC 8259 once more, written for the eye and not for speed.
class Grammar {
 public:
  explicit Grammar(absl::string_view text) : text_(text) {}

  JsonProof Check() {
    Value(0);
    Space();
    return at_ == text_.size() || answer_ != JsonProof::kProven ? answer_ : JsonProof::kNotJson;
  }

 private:
  bool good() const { return answer_ == JsonProof::kProven; }
  void Fail(JsonProof answer = JsonProof::kNotJson) {
    if (good()) answer_ = answer;
  }
  bool At(absl::string_view any_of) const {
    return at_ < text_.size() && any_of.find(text_[at_]) != absl::string_view::npos;
  }
  bool Take(absl::string_view any_of) { return At(any_of) ? ++at_, true : false; }
  void Need(absl::string_view any_of) {
    if (!Take(any_of)) Fail();
  }
  void Space() {
    while (Take(" \t\r\n")) {
    }
  }
  void Word(absl::string_view word) {
    if (text_.substr(at_, word.size()) != word) return Fail();
    at_ += word.size();
  }
  void Digits() {
    Need("0123456789");
    while (Take("0123456789")) {
    }
  }
  void Number() {
    Take("-");
    if (!Take("0")) Digits();
    if (Take(".")) Digits();
    if (Take("eE")) {
      Take("+-");
      Digits();
    }
  }
  void String() {
    Need("\"");
    while (good() && !Take("\"")) {
      if (at_ == text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) return Fail();
      if (text_[at_++] != '\\') continue;
      if (Take("u")) {
        for (int i = 0; i < 4; ++i) Need("0123456789abcdefABCDEF");
      } else {
        Need("\"\\/bfnrt");
      }
    }
  }
  void Value(size_t depth) {
    Space();
    if (!good()) return;
    if (At("{[")) {
      if (depth == kJsonDepthMax) return Fail(JsonProof::kTooDeep);
      const bool object = text_[at_++] == '{';
      const absl::string_view close = object ? "}" : "]";
      Space();
      if (Take(close)) return;
      do {
        Space();
        if (object) {
          String();
          Space();
          if (good()) Need(":");
        }
        Value(depth + 1);
        Space();
      } while (good() && Take(","));
      if (good()) Need(close);
    } else if (At("\"")) {
      String();
    } else if (At("tfn")) {
      Word(At("t") ? "true" : At("f") ? "false" : "null");
    } else {
      Number();
    }
  }

  const absl::string_view text_;
  size_t at_ = 0;
  JsonProof answer_ = JsonProof::kProven;
};

bool NaiveUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i++]);
    const int more = lead < 0x80 ? 0 : lead < 0xc0 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if (more < 0 || lead >= 0xf8) return false;
    uint32_t rune = more == 0 ? lead : lead & (0x3fu >> more);
    for (int k = 0; k < more; ++k, ++i) {
      if (i == text.size() || (static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) return false;
      rune = rune << 6 | (static_cast<uint8_t>(text[i]) & 0x3fu);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (rune < kLeast[more] || rune > 0x10ffff || (rune >= 0xd800 && rune < 0xe000)) return false;
  }
  return true;
}

bool Within(absl::string_view part, absl::string_view whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

// Taken apart, the parts are values again and put together they are the same.
void TakeApart(absl::string_view proven) {
  const size_t first = proven.find_first_not_of(" \t\r\n");
  const absl::optional<std::vector<absl::string_view>> elements = RawElements(proven);
  const absl::optional<std::vector<RawMember>> members = RawMembers(proven);
  POSTRIDER_CHECK(elements.has_value() == (proven[first] == '['));
  POSTRIDER_CHECK(members.has_value() == (proven[first] == '{'));
  if (elements) {
    std::string joined = "[";
    for (const absl::string_view element : *elements) {
      POSTRIDER_CHECK(Within(element, proven));
      POSTRIDER_CHECK(ProveJson(element) == JsonProof::kProven);
      if (joined.size() > 1) joined += ',';
      joined.append(element.data(), element.size());
    }
    POSTRIDER_CHECK(RawElements(joined + ']') == *elements);
  }
  if (members) {
    for (const RawMember& member : *members) {
      POSTRIDER_CHECK(Within(member.value, proven));
      POSTRIDER_CHECK(ProveJson(member.value) == JsonProof::kProven);
      POSTRIDER_CHECK(IsUtf8(member.name));
    }
  }
}

// A proven payload cannot break out of the document that it is put into.
void PutIntoEnvelope(absl::string_view proven) {
  const std::string payload(proven);
  const std::string envelope = "{\"id\":\"a\",\"data\":" + payload + "}";
  const JsonProof proof = ProveJson(envelope);
  if (proof == JsonProof::kTooDeep) return;
  POSTRIDER_CHECK(proof == JsonProof::kProven);
  const absl::optional<std::vector<RawMember>> members = RawMembers(envelope);
  POSTRIDER_CHECK(members && members->size() == 2 && members->at(1).name == "data");
  const size_t first = payload.find_first_not_of(" \t\r\n");
  const size_t last = payload.find_last_not_of(" \t\r\n");
  POSTRIDER_CHECK(members->at(1).value == payload.substr(first, last + 1 - first));
  const std::string array = "[" + payload + "," + payload + "]";
  POSTRIDER_CHECK(ProveJson(array) == JsonProof::kProven);
  POSTRIDER_CHECK(RawElements(array)->size() == 2);
}

}  // namespace
}  // namespace postrider::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace postrider;
  using namespace postrider::fuzz;
  static JsonProver& prover = *new JsonProver();
  const absl::string_view text = View(data, size);
  const bool utf8 = IsUtf8(text);
  POSTRIDER_CHECK(utf8 == NaiveUtf8(text));
  size_t fault = size;
  const JsonProof proof = ProveJson(text, &fault);
  POSTRIDER_CHECK(fault <= size);
  POSTRIDER_CHECK(proof == (utf8 ? Grammar(text).Check() : JsonProof::kNotUtf8));
  POSTRIDER_CHECK(prover.Prove(text) == proof);
  POSTRIDER_CHECK(ProveOneJsonValue(text).ok() == (proof == JsonProof::kProven));
  if (proof == JsonProof::kProven) {
    TakeApart(text);
    PutIntoEnvelope(text);
  } else {
    POSTRIDER_CHECK(!JsonValue::Parse(text).ok());
  }
  return 0;
}
