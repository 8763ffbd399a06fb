#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "api/request.h"
#include "core/json/json.h"
#include "subscriptions/registry/field_fault.h"

namespace postrider::api {

// Takes a JSON object apart into typed fields and writes down every fault. A field that is absent
// or null leaves the variable as it is. Fields that were not asked for are faults: see Finish().
class FieldReader {
 public:
  // `object` null: all fields are absent. Something that is no object is one fault.
  FieldReader(const JsonValue* object, std::string pointer, subscriptions::FieldFaults& faults);

  // The field's value; null when it is absent or null.
  const JsonValue* Take(absl::string_view name);
  // False: it was absent or of another kind.
  bool String(absl::string_view name, std::string* out);
  bool Int(absl::string_view name, int64_t* out);
  bool Int(absl::string_view name, int* out);
  bool Number(absl::string_view name, double* out);
  bool Millis(absl::string_view name, std::chrono::milliseconds* out);
  bool Bool(absl::string_view name, bool* out);
  bool IntList(absl::string_view name, std::vector<int64_t>* out);
  bool StringList(absl::string_view name, std::vector<std::string>* out);
  // The same, but an absent one is a fault.
  bool RequiredString(absl::string_view name, std::string* out);
  void Required(absl::string_view name);
  void Range(absl::string_view name, int64_t value, int64_t least, int64_t most);
  void Fault(absl::string_view name, absl::string_view detail);
  // Every member that was not taken is a fault.
  void Finish();

  std::string PointerTo(absl::string_view name) const;

 private:
  bool WrongKind(absl::string_view name, absl::string_view what);

  const JsonValue* object_;
  std::string pointer_;
  subscriptions::FieldFaults& faults_;
  std::vector<std::string> taken_;
};

// The body as an object; `optional_body`: nothing at all is an empty one. 400 when it is malformed,
// 422 when it is another kind of JSON.
struct ParsedBody {
  JsonValue object;
  absl::optional<Response> refusal;
};
enum class BodyNeed { kRequired, kOptional };
ParsedBody ParseBody(const Request& request, BodyNeed need = BodyNeed::kRequired);

// Members of `patch` that `shape` does not have, at any depth; those under `open` pointers are
// free. A merge patch may remove such a member without anybody noticing otherwise.
void FindUnknownMembers(const JsonValue& patch, const JsonValue& shape,
                        const std::vector<std::string>& open, const std::string& pointer,
                        subscriptions::FieldFaults* faults);

// Keeps the first fault of each pointer.
void KeepFirstFaults(subscriptions::FieldFaults* faults);

}  // namespace postrider::api
