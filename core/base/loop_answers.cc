#include "core/base/loop_answers.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/wake_fd.h"

namespace postrider {

struct LoopAnswers::Place::Line {
  explicit Line(WakeFd wake_fd) : wake(std::move(wake_fd)) {}
  WakeFd wake;
  size_t expected = 0;  // the loop's
  absl::Mutex mutex;
  std::vector<Answer> given ABSL_GUARDED_BY(mutex);
};

struct LoopAnswers::Lines {
  absl::Mutex mutex;
  std::map<const EventLoop*, std::shared_ptr<Place::Line>> by_loop ABSL_GUARDED_BY(mutex);
};

// Of the watch of a line: takes the line out when the watch ends, or its loop.
class LoopAnswers::Place::Entry {
 public:
  Entry(std::shared_ptr<Lines> lines, const EventLoop* loop, std::shared_ptr<Line> line)
      : lines_(std::move(lines)), loop_(loop), line_(std::move(line)) {}
  ~Entry() {
    absl::MutexLock lock(&lines_->mutex);
    const auto found = lines_->by_loop.find(loop_);
    if (found != lines_->by_loop.end() && found->second == line_) lines_->by_loop.erase(found);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  const std::shared_ptr<Lines> lines_;
  const EventLoop* const loop_;
  const std::shared_ptr<Line> line_;
};

void LoopAnswers::Place::Give(Answer&& answer) {
  absl::MutexLock lock(&line_->mutex);
  line_->given.push_back(std::move(answer));
  if (line_->given.size() == 1) line_->wake.Wake();
}

LoopAnswers::LoopAnswers() : lines_(std::make_shared<Lines>()) {}
LoopAnswers::~LoopAnswers() = default;

absl::StatusOr<LoopAnswers::Place> LoopAnswers::Expect(EventLoop& loop) {
  std::shared_ptr<Place::Line> line;
  {
    absl::MutexLock lock(&lines_->mutex);
    const auto known = lines_->by_loop.find(&loop);
    if (known == lines_->by_loop.end()) {
      ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
      line = std::make_shared<Place::Line>(std::move(wake));
      lines_->by_loop[&loop] = line;
    } else {
      line = known->second;
    }
  }
  if (line->expected++ > 0) return Place(std::move(line));
  auto entry = std::make_unique<Place::Entry>(lines_, &loop, line);
  // If it fails the line goes with the entry.
  RETURN_IF_ERROR(
      loop.Watch(line->wake.get(), kFdReadable, [&loop, line, entry = std::move(entry)](uint32_t) {
        std::vector<Answer> given;
        {
          absl::MutexLock lock(&line->mutex);
          line->wake.Clear();
          given.swap(line->given);
        }
        // Until all have run the line stays, for they may ask again.
        for (Answer& answer : given) std::move(answer)();
        line->expected -= given.size();
        if (line->expected == 0) loop.Unwatch(line->wake.get());
      }));
  return Place(std::move(line));
}

}  // namespace postrider
