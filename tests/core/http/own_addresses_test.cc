#include "core/http/own_addresses.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/clock.h"
#include "core/base/event_loop.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Places = OwnAddresses::Places;

IpAddress At(const char* text) { return *IpAddress::Parse(text); }

// A name server of the test's own; `found` is written down.
class OwnAddressesTest : public ::testing::Test {
 protected:
  // Its thread may outlive the test.
  struct Names {
    std::vector<IpAddress> Answer(const std::string& host) {
      absl::MutexLock lock(&mutex);
      ++asked[host];
      return answers[host];
    }
    absl::Mutex mutex;
    std::map<std::string, std::vector<IpAddress>> answers ABSL_GUARDED_BY(mutex);
    std::map<std::string, int> asked ABSL_GUARDED_BY(mutex);
  };

  void SetAnswer(const std::string& host, std::vector<IpAddress> addresses) {
    absl::MutexLock lock(&names_->mutex);
    names_->answers[host] = std::move(addresses);
  }
  void Start(std::vector<HostAndPort> hosts) {
    own_ = std::make_unique<OwnAddresses>(
        *loop_, std::move(hosts), more_,
        [names = names_](const std::string& host) { return names->Answer(host); }, milliseconds(1),
        [this](Places places, OwnAddresses::Known known) {
          known_ = known;
          if (found_.empty() || found_.back() != places) found_.push_back(std::move(places));
        });
  }
  void AwaitFound(size_t count) {
    while (found_.size() < count) loop_->RunOnce(milliseconds(5));
  }
  // Until the name was looked up so many times more from now on.
  void AwaitAsked(const std::string& host, int more) {
    absl::MutexLock lock(&names_->mutex);
    const int wanted = names_->asked[host] + more;
    const auto enough = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return names_->asked[host] >= wanted;
    };
    names_->mutex.Await(absl::Condition(&enough));
  }

  // How often more hosts were asked for.
  class Rounds {
   public:
    void Count() {
      absl::MutexLock lock(&mutex_);
      ++count_;
    }
    void Await(int count) {
      absl::MutexLock lock(&mutex_);
      const auto enough = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return count_ >= count; };
      mutex_.Await(absl::Condition(&enough));
    }

   private:
    absl::Mutex mutex_;
    int count_ ABSL_GUARDED_BY(mutex_) = 0;
  };

  SystemClock clock_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  const std::shared_ptr<Names> names_ = std::make_shared<Names>();
  OwnAddresses::MoreHosts more_;
  std::vector<Places> found_;  // each that differs from the one before
  OwnAddresses::Known known_ = OwnAddresses::Known::kSome;
  std::unique_ptr<OwnAddresses> own_;
};

TEST_F(OwnAddressesTest, KnowsAddressesAndWhatNamesStandFor) {
  SetAnswer("db", {At("10.0.0.1"), At("fd00::1")});
  Start({{"10.0.0.9", 80}, {"db", 5432}, {"db", 6432}, {"nobody", 1}, {"10.0.0.9", 0}});
  AwaitFound(2);
  EXPECT_THAT(found_[0], ElementsAre(Pair(At("10.0.0.9"), 80))) << "no name is waited for";
  EXPECT_THAT(found_[1], UnorderedElementsAre(Pair(At("10.0.0.9"), 80), Pair(At("10.0.0.1"), 5432),
                                              Pair(At("fd00::1"), 5432), Pair(At("10.0.0.1"), 6432),
                                              Pair(At("fd00::1"), 6432)));
  AwaitAsked("nobody", 2);
  loop_->RunOnce(milliseconds(0));
  EXPECT_EQ(known_, OwnAddresses::Known::kSome) << "a look that finds nothing is no knowledge";
  SetAnswer("nobody", {At("10.0.0.7")});
  AwaitFound(3);
  EXPECT_EQ(known_, OwnAddresses::Known::kAll);
}

TEST_F(OwnAddressesTest, TellsWhatItKnowsWhileALookupHangs) {
  auto go_on = std::make_shared<absl::Notification>();
  own_ = std::make_unique<OwnAddresses>(
      *loop_, std::vector<HostAndPort>{{"db", 5432}, {"hangs", 1}}, nullptr,
      [go_on](const std::string& host) {
        if (host == "db") return std::vector<IpAddress>{At("10.0.0.1")};
        go_on->WaitForNotification();
        return std::vector<IpAddress>();
      },
      milliseconds(1),
      [this](Places places, OwnAddresses::Known known) {
        known_ = known;
        found_.push_back(std::move(places));
      });
  AwaitFound(1);
  EXPECT_THAT(found_[0], ElementsAre(Pair(At("10.0.0.1"), 5432)));
  EXPECT_EQ(known_, OwnAddresses::Known::kSome);
  own_.reset();
  go_on->Notify();
}

TEST_F(OwnAddressesTest, TellsOfAnAddressThatComesAndKeepsWhatItKnows) {
  SetAnswer("kafka", {At("10.0.0.1")});
  Start({{"kafka", 9092}});
  AwaitFound(1);
  SetAnswer("kafka", {At("10.0.0.2")});
  AwaitFound(2);
  EXPECT_THAT(found_[1], ElementsAre(Pair(At("10.0.0.1"), 9092), Pair(At("10.0.0.2"), 9092)));
  // Answers that take turns, and none at all, change nothing.
  SetAnswer("kafka", {At("10.0.0.1")});
  AwaitAsked("kafka", 3);
  SetAnswer("kafka", {});
  AwaitAsked("kafka", 3);
  SetAnswer("kafka", {At("10.0.0.3")});
  AwaitFound(3);
  EXPECT_EQ(found_.size(), 3u);
  EXPECT_EQ(found_[2].size(), 3u);
}

TEST_F(OwnAddressesTest, KeepsHostsThatAreOnlyKnownLater) {
  SetAnswer("b1", {At("10.0.0.1")});
  SetAnswer("b2", {At("10.0.0.2")});
  int asked = 0;
  more_ = [&asked]() -> std::vector<HostAndPort> {
    switch (asked++) {
      case 0:
        return {};
      case 1:
        return {{"b1", 9092}};
      default:
        return {{"b2", 9092}};
    }
  };
  Start({});
  AwaitFound(3);
  EXPECT_THAT(found_[2], ElementsAre(Pair(At("10.0.0.1"), 9092), Pair(At("10.0.0.2"), 9092)));
  own_.reset();  // `asked` is not touched afterwards
}

TEST_F(OwnAddressesTest, TellsOnceThatThereIsNothing) {
  auto rounds = std::make_shared<Rounds>();
  int told = 0;
  own_ = std::make_unique<OwnAddresses>(
      *loop_, std::vector<HostAndPort>(),
      [rounds] {
        rounds->Count();
        return std::vector<HostAndPort>();
      },
      [](const std::string&) { return std::vector<IpAddress>(); }, milliseconds(1),
      [&told](Places places, OwnAddresses::Known) {
        EXPECT_THAT(places, IsEmpty());
        ++told;
      });
  rounds->Await(5);
  loop_->RunOnce(milliseconds(0));
  EXPECT_EQ(told, 1);
}

TEST_F(OwnAddressesTest, BoundsWhatItKeepsOfAName) {
  std::vector<IpAddress> many;
  for (uint32_t i = 0; i < 2 * OwnAddresses::kAddressesMax; ++i) many.push_back(IpAddress::V4(i));
  SetAnswer("many", many);
  Start({{"many", 1}});
  AwaitFound(1);
  EXPECT_EQ(found_[0].size(), OwnAddresses::kAddressesMax);
  EXPECT_EQ(found_[0].back().first, many.back()) << "the newest stay";
}

TEST_F(OwnAddressesTest, DoesNotWaitForALookupThatHangs) {
  auto begun = std::make_shared<absl::Notification>();
  auto go_on = std::make_shared<absl::Notification>();
  // Its end says that the thread's has come.
  struct EndsWithTheThread {
    ~EndsWithTheThread() { ended->Notify(); }
    std::shared_ptr<absl::Notification> ended = std::make_shared<absl::Notification>();
  };
  auto thread = std::make_shared<EndsWithTheThread>();
  const std::shared_ptr<absl::Notification> ended = thread->ended;
  bool told = false;
  own_ = std::make_unique<OwnAddresses>(
      *loop_, std::vector<HostAndPort>{{"hangs", 1}}, nullptr,
      [begun, go_on, thread = std::move(thread)](const std::string&) {
        if (!begun->HasBeenNotified()) begun->Notify();
        go_on->WaitForNotification();
        return std::vector<IpAddress>{At("10.0.0.1")};
      },
      milliseconds(1), [&told](Places, OwnAddresses::Known) { told = true; });
  begun->WaitForNotification();
  own_.reset();
  go_on->Notify();
  ended->WaitForNotification();
  loop_->RunOnce(milliseconds(0));
  EXPECT_FALSE(told);
}

TEST(SystemLookupTest, FindsThisMachineByName) {
  const std::vector<IpAddress> found = OwnAddresses::SystemLookup()("localhost");
  EXPECT_THAT(found, ::testing::AnyOf(::testing::Contains(At("127.0.0.1")),
                                      ::testing::Contains(At("::1"))));
}

}  // namespace
}  // namespace postrider
