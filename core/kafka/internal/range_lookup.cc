#include "core/kafka/internal/range_lookup.h"

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace postrider::kafka_internal {
namespace {

constexpr int kTimeoutMs = 1'000;
constexpr Duration kAgain = std::chrono::milliseconds(500);

}  // namespace

struct RangeLookup::Mailbox {
  struct Mail {
    Question question;
    absl::optional<Log::Range> range;
  };
  std::unique_ptr<WakeFd> wake;
  absl::Mutex mutex;
  std::vector<Mail> mail ABSL_GUARDED_BY(mutex);
};

RangeLookup::RangeLookup(ControlThread& control, rd_kafka_t* admin, EventLoop& loop,
                         std::unique_ptr<WakeFd> wake, std::function<bool(const Question&)> wanted)
    : control_(control),
      admin_(admin),
      loop_(loop),
      wanted_(std::move(wanted)),
      mailbox_(std::make_shared<Mailbox>()) {
  mailbox_->wake = std::move(wake);
}

RangeLookup::~RangeLookup() {
  if (timer_ != 0) loop_.CancelTimer(timer_);
}

void RangeLookup::Ask(const Question& question) {
  ControlThread::Job job = [mailbox = mailbox_, admin = admin_, question] {
    Log::Range range;
    const rd_kafka_resp_err_t err =
        rd_kafka_query_watermark_offsets(admin, question.tp.topic.c_str(), question.tp.partition,
                                         &range.begin, &range.end, kTimeoutMs);
    Mailbox::Mail mail{question, absl::nullopt};
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) mail.range = range;
    absl::MutexLock lock(&mailbox->mutex);
    mailbox->mail.push_back(std::move(mail));
    mailbox->wake->Signal();
  };
  if (!control_.Run(std::move(job))) AskLater(question);
}

void RangeLookup::AskLater(const Question& question) {
  again_.push_back(question);
  if (timer_ != 0) return;
  timer_ = loop_.CallAfter(kAgain, [this] {
    timer_ = 0;
    for (const Question& one : std::exchange(again_, {})) {
      if (wanted_(one)) Ask(one);
    }
  });
}

std::vector<RangeLookup::Answer> RangeLookup::TakeAnswers() {
  std::vector<Mailbox::Mail> all;
  {
    absl::MutexLock lock(&mailbox_->mutex);
    all.swap(mailbox_->mail);
  }
  std::vector<Answer> answers;
  for (Mailbox::Mail& mail : all) {
    if (!wanted_(mail.question)) continue;
    if (mail.range.has_value()) {
      answers.push_back({std::move(mail.question), *mail.range});
    } else {
      AskLater(mail.question);
    }
  }
  return answers;
}

}  // namespace postrider::kafka_internal
