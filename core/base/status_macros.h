#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                       \
  do {                                                    \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define POSTRIDER_CONCAT_INNER(a, b) a##b
#define POSTRIDER_CONCAT(a, b) POSTRIDER_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(Type name, StatusOrExpression);
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_INNER(POSTRIDER_CONCAT(status_or_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_INNER(result, lhs, expression) \
  auto result = (expression);                           \
  if (!result.ok()) return std::move(result).status();  \
  lhs = *std::move(result)
