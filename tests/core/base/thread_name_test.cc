#include "core/base/thread_name.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <string>
#include <thread>

namespace postrider {
namespace {

std::string NameAfter(absl::string_view name) {
  std::string shown;
  std::thread thread([&] {
    NameThread(name);
    char text[32] = {};
    if (pthread_getname_np(pthread_self(), text, sizeof(text)) == 0) shown = text;
  });
  thread.join();
  return shown;
}

TEST(ThreadNameTest, NamesTheCallingThreadUpToFifteenBytes) {
  EXPECT_EQ(NameAfter("log-writer"), "log-writer");
  EXPECT_EQ(NameAfter("fifteen-bytes-x"), "fifteen-bytes-x");
  EXPECT_EQ(NameAfter("sixteen-bytes-xy"), "sixteen-bytes-x");
}

}  // namespace
}  // namespace postrider
