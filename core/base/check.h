#pragma once

namespace postrider::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace postrider::internal

// An invariant of our own: when it is broken the process stops at once, for nothing that it would
// do next can be trusted. Never for what comes from outside.
#define POSTRIDER_CHECK(condition)                                                \
  (static_cast<bool>(condition)                                                   \
       ? static_cast<void>(0)                                                     \
       : ::postrider::internal::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define POSTRIDER_DCHECK(condition) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define POSTRIDER_DCHECK(condition) POSTRIDER_CHECK(condition)
#endif
