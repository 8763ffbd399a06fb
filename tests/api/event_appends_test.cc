#include "api/internal/event_appends.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace postrider::api {
namespace {

using ::testing::ElementsAre;
using Fate = EventAppends::Fate;

// Appends are written down and answered by the test.
class EventAppendsTest : public ::testing::Test {
 protected:
  void Start(size_t count) {
    appends_ = std::make_shared<EventAppends>(
        count,
        [](size_t i) {
          AppendRecord record;
          record.key = absl::StrCat(i);
          return record;
        },
        [this](AppendRecord record, ProducerOptions::Batches batches,
               LogProducer::AppendDone done) {
          if (!refusal_.ok()) return refusal_;
          const bool alone = batches == ProducerOptions::Batches::kOfOne;
          asked_.push_back(absl::StrCat(record.key, alone ? " alone" : ""));
          waiting_.emplace(record.key, std::move(done));
          return absl::OkStatus();
        });
    appends_->Start([this] { ++ended_; });
  }
  void Answer(const std::string& key, absl::StatusOr<int64_t> offset) {
    LogProducer::AppendDone done = std::move(waiting_.extract(key).mapped());
    std::move(done)(std::move(offset));
  }
  std::vector<Fate> Fates() const {
    std::vector<Fate> fates;
    for (const EventAppends::Entry& entry : appends_->entries()) fates.push_back(entry.fate);
    return fates;
  }

  std::shared_ptr<EventAppends> appends_;
  std::vector<std::string> asked_;
  std::map<std::string, LogProducer::AppendDone> waiting_;
  absl::Status refusal_;
  int ended_ = 0;
};

TEST_F(EventAppendsTest, TellsOfEachRecordWhatBecameOfIt) {
  Start(3);
  Answer("0", 7);
  Answer("1", absl::InvalidArgumentError("too large"));
  Answer("2", 8);
  EXPECT_EQ(ended_, 0) << "what was said of a batch may be another's";
  EXPECT_THAT(asked_, ElementsAre("0", "1", "2", "1 alone"));
  Answer("1", absl::InvalidArgumentError("too large"));
  EXPECT_EQ(ended_, 1);
  EXPECT_THAT(Fates(), ElementsAre(Fate::kStored, Fate::kRefused, Fate::kStored));
  EXPECT_EQ(appends_->entries()[2].offset, 8);
  EXPECT_TRUE(appends_->failure().ok());
}

TEST_F(EventAppendsTest, AppendsWhatWasRefusedWithItsBatchInABatchOfItsOwn) {
  const auto batch = absl::FailedPreconditionError("max.message.bytes is below the batch");
  Start(3);
  for (const char* key : {"0", "2", "1"}) Answer(key, batch);
  // All at once, in their order: an array of a thousand has no time for one after another.
  EXPECT_THAT(asked_, ElementsAre("0", "1", "2", "0 alone", "1 alone", "2 alone"));
  Answer("0", 4);
  Answer("1", batch);
  EXPECT_EQ(ended_, 0);
  Answer("2", 5);
  EXPECT_EQ(ended_, 1);
  EXPECT_THAT(Fates(), ElementsAre(Fate::kStored, Fate::kRefused, Fate::kStored));
  EXPECT_EQ(appends_->entries()[0].offset, 4);
}

TEST_F(EventAppendsTest, LeavesOpenWhatCannotBeWrittenNow) {
  Start(3);
  Answer("0", absl::FailedPreconditionError("batch"));
  Answer("1", 3);
  Answer("2", absl::UnavailableError("away"));
  EXPECT_EQ(ended_, 1) << "nothing is tried again with a log that is away";
  EXPECT_THAT(Fates(), ElementsAre(Fate::kOpen, Fate::kStored, Fate::kOpen));
  EXPECT_TRUE(absl::IsUnavailable(appends_->failure()));
}

TEST_F(EventAppendsTest, EndsAtOnceWhenNothingIsTaken) {
  refusal_ = absl::ResourceExhaustedError("full");
  Start(2);
  EXPECT_EQ(ended_, 1);
  EXPECT_THAT(Fates(), ElementsAre(Fate::kOpen, Fate::kOpen));
  EXPECT_EQ(appends_->failure(), refusal_);
}

TEST_F(EventAppendsTest, TriesNothingMoreAfterAStop) {
  Start(1);
  appends_->Stop();
  Answer("0", absl::FailedPreconditionError("batch"));
  EXPECT_EQ(ended_, 1);
  EXPECT_THAT(asked_, ElementsAre("0"));
  EXPECT_THAT(Fates(), ElementsAre(Fate::kOpen));
}

}  // namespace
}  // namespace postrider::api
