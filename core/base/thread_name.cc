#include "core/base/thread_name.h"

#include <pthread.h>

#include <cstddef>
#include <string>

namespace postrider {
namespace {

constexpr size_t kNameMax = 15;

}  // namespace

void NameThread(absl::string_view name) {
  pthread_setname_np(pthread_self(), std::string(name.substr(0, kNameMax)).c_str());
}

}  // namespace postrider
