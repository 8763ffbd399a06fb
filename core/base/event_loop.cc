#include "core/base/event_loop.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"

namespace postrider {
namespace {

// More ready fds than this wait for the next turn.
constexpr int kEventsPerTurn = 256;
// The longest sleep of Run(): the kernel's timeouts stand still while the machine sleeps and our
// clock does not, so a sleep must not be long.
constexpr Duration kRunWaitMax = std::chrono::seconds(10);
// Below this many timers the heap keeps its cancelled ones.
constexpr size_t kCompactAbove = 64;

Duration RealTime() {
  return std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch());
}

uint32_t ToEpoll(uint32_t events) {
  uint32_t result = 0;
  if (events & kFdReadable) result |= EPOLLIN;
  if (events & kFdWritable) result |= EPOLLOUT;
  return result;
}

uint32_t FromEpoll(uint32_t events) {
  uint32_t result = kFdNone;
  if (events & EPOLLIN) result |= kFdReadable;
  if (events & EPOLLOUT) result |= kFdWritable;
  if (events & (EPOLLERR | EPOLLHUP)) result |= kFdError;
  return result;
}

// Which watch an event is for; the generation tells a new watch of an fd number from an old one.
uint64_t Token(int fd, uint32_t generation) {
  return (static_cast<uint64_t>(generation) << 32) | static_cast<uint32_t>(fd);
}

absl::Status ErrnoStatus(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

// A sum that stays at the end of time instead of overflowing.
MonotonicTime SaturatedAdd(MonotonicTime time, Duration delay) {
  if (delay <= Duration::zero()) return time;
  if (time > MonotonicTime::max() - delay) return MonotonicTime::max();
  return time + delay;
}

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

struct TimerEntry {
  MonotonicTime time;
  TimerId id;
};
// Turns the standard heap's largest-first into first-due-first; ids rise with each call.
struct LaterTimer {
  bool operator()(const TimerEntry& a, const TimerEntry& b) const {
    return a.time != b.time ? a.time > b.time : a.id > b.id;
  }
};

}  // namespace

struct EventLoop::Impl {
  struct Watch {
    uint32_t generation = 0;
    uint32_t events = 0;
    FdCallback callback;
  };

  Impl(const Clock& loop_clock, int epoll, int wake)
      : clock(loop_clock), epoll_fd(epoll), wake_fd(wake), last_turn(loop_clock.Now()) {}

  Watch* Find(int fd) {
    const auto index = static_cast<size_t>(fd);
    return fd >= 0 && index < watches.size() ? watches[index].get() : nullptr;
  }
  void Wake() {
    const uint64_t one = 1;
    // It fails only when the counter is full, and then the loop is awake anyway.
    [[maybe_unused]] const ssize_t written = write(wake_fd.get(), &one, sizeof(one));
  }
  void DrainWake() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_fd.get(), &count, sizeof(count));
  }

  void DropCancelledTop();
  void CompactTimers();
  Duration WaitTime(Duration wait_max);
  int Wait(Duration wait, epoll_event* events);
  size_t RunFds(const epoll_event* events, int count);
  size_t RunPosted();
  size_t RunTimers();
  void BuryRetired();

  const Clock& clock;
  const OwnedFd epoll_fd;
  const OwnedFd wake_fd;
  bool has_pwait2 = true;

  std::vector<std::unique_ptr<Watch>> watches;  // by fd
  uint32_t next_generation = 1;

  // The heap may hold cancelled timers; those with a callback are alive.
  std::vector<TimerEntry> heap;
  absl::flat_hash_map<TimerId, Callback> timers;
  TimerId next_timer = 1;
  std::vector<TimerEntry> due;  // empty between turns, kept for its capacity

  absl::Mutex mutex;
  std::vector<Callback> posted ABSL_GUARDED_BY(mutex);
  std::vector<Callback> running_posts;  // empty between turns, kept for its capacity
  std::atomic<bool> stop{false};

  std::unique_ptr<absl::AnyInvocable<void()>> turn_end;
  // What was removed inside a turn and may be running; destroyed when the turn ends.
  std::vector<std::unique_ptr<Watch>> retired_watches;
  std::vector<std::unique_ptr<absl::AnyInvocable<void()>>> retired_turn_ends;

  bool in_turn = false;
  Duration busy{0};
  Duration idle{0};
  MonotonicTime last_turn;
};

void EventLoop::Impl::DropCancelledTop() {
  while (!heap.empty() && !timers.contains(heap.front().id)) {
    std::pop_heap(heap.begin(), heap.end(), LaterTimer());
    heap.pop_back();
  }
}

// At least half of the heap is cancelled whenever this does any work, so that the cost per
// cancelled timer is constant on average.
void EventLoop::Impl::CompactTimers() {
  if (heap.size() <= kCompactAbove || heap.size() <= 2 * timers.size()) return;
  std::erase_if(heap, [this](const TimerEntry& entry) { return !timers.contains(entry.id); });
  std::make_heap(heap.begin(), heap.end(), LaterTimer());
}

Duration EventLoop::Impl::WaitTime(Duration wait_max) {
  Duration wait = std::max(wait_max, Duration::zero());
  if (wait == Duration::zero()) return wait;
  DropCancelledTop();
  if (heap.empty()) return wait;
  const MonotonicTime now = clock.Now();
  if (heap.front().time <= now) return Duration::zero();
  return std::min(wait, heap.front().time - now);
}

int EventLoop::Impl::Wait(Duration wait, epoll_event* events) {
  if (has_pwait2) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
    timespec timeout;
    timeout.tv_sec = seconds.count();
    timeout.tv_nsec = (wait - seconds).count();
    const int count = epoll_pwait2(epoll_fd.get(), events, kEventsPerTurn, &timeout, nullptr);
    if (count >= 0) return count;
    if (errno == EINTR) return 0;
    // Kernels before 5.11 do not know it, and some sandboxes forbid it.
    POSTRIDER_CHECK(errno == ENOSYS || errno == EPERM);
    has_pwait2 = false;
  }
  const int64_t millis =
      std::min<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(wait).count(), INT_MAX);
  const int count = epoll_wait(epoll_fd.get(), events, kEventsPerTurn, static_cast<int>(millis));
  if (count >= 0) return count;
  POSTRIDER_CHECK(errno == EINTR);
  return 0;
}

size_t EventLoop::Impl::RunFds(const epoll_event* events, int count) {
  size_t ran = 0;
  for (int i = 0; i < count; ++i) {
    const int fd = static_cast<int>(static_cast<uint32_t>(events[i].data.u64));
    if (fd == wake_fd.get()) {
      DrainWake();
      continue;
    }
    Watch* watch = Find(fd);
    if (watch == nullptr || Token(fd, watch->generation) != events[i].data.u64) continue;
    // A callback before this one may have changed what the fd is watched for.
    const uint32_t happened = FromEpoll(events[i].events) & (watch->events | kFdError);
    if (happened == kFdNone) continue;
    watch->callback(happened);
    ++ran;
  }
  return ran;
}

size_t EventLoop::Impl::RunPosted() {
  {
    absl::MutexLock lock(&mutex);
    running_posts.swap(posted);
  }
  const size_t ran = running_posts.size();
  for (Callback& callback : running_posts) {
    Callback now = std::move(callback);
    std::move(now)();
  }
  running_posts.clear();
  return ran;
}

// All that is due is collected first, so that what these callbacks set waits for the next turn.
size_t EventLoop::Impl::RunTimers() {
  if (heap.empty()) return 0;
  const MonotonicTime now = clock.Now();
  while (!heap.empty() && heap.front().time <= now) {
    due.push_back(heap.front());
    std::pop_heap(heap.begin(), heap.end(), LaterTimer());
    heap.pop_back();
  }
  size_t ran = 0;
  for (const TimerEntry& entry : due) {
    const auto found = timers.find(entry.id);
    if (found == timers.end()) continue;
    Callback callback = std::move(found->second);
    timers.erase(found);
    std::move(callback)();
    ++ran;
  }
  due.clear();
  return ran;
}

// The destructors of callbacks may remove further watches.
void EventLoop::Impl::BuryRetired() {
  while (!retired_watches.empty() || !retired_turn_ends.empty()) {
    const auto buried_watches = std::exchange(retired_watches, {});
    const auto buried_turn_ends = std::exchange(retired_turn_ends, {});
  }
}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(const Clock& clock) {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return ErrnoStatus("event loop: epoll_create1");
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    const absl::Status status = ErrnoStatus("event loop: eventfd");
    close(epoll_fd);
    return status;
  }
  auto impl = std::make_unique<Impl>(clock, epoll_fd, wake_fd);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = Token(wake_fd, 0);
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0) {
    return ErrnoStatus("event loop: watching the eventfd");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(impl)));
}

EventLoop::EventLoop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// Callbacks are destroyed while the loop still answers, for what they own may call it.
EventLoop::~EventLoop() {
  POSTRIDER_CHECK(!impl_->in_turn);
  std::vector<Callback> posted;
  {
    absl::MutexLock lock(&impl_->mutex);
    posted.swap(impl_->posted);
  }
  const auto turn_end = std::move(impl_->turn_end);
  const auto timers = std::exchange(impl_->timers, {});
  const auto watches = std::exchange(impl_->watches, {});
}

const Clock& EventLoop::clock() const { return impl_->clock; }

absl::Status EventLoop::Watch(int fd, uint32_t events, FdCallback callback) {
  POSTRIDER_CHECK(callback != nullptr);
  if (fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("event loop: fd ", fd, " cannot be watched"));
  }
  if (impl_->Find(fd) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("event loop: fd ", fd, " is watched already"));
  }
  auto watch = std::make_unique<Impl::Watch>();
  watch->generation = impl_->next_generation++;
  watch->events = events;
  watch->callback = std::move(callback);
  epoll_event event{};
  event.events = ToEpoll(events);
  event.data.u64 = Token(fd, watch->generation);
  if (epoll_ctl(impl_->epoll_fd.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ErrnoStatus(absl::StrCat("event loop: watching fd ", fd));
  }
  const auto index = static_cast<size_t>(fd);
  if (index >= impl_->watches.size()) impl_->watches.resize(index + 1);
  impl_->watches[index] = std::move(watch);
  return absl::OkStatus();
}

void EventLoop::SetEvents(int fd, uint32_t events) {
  Impl::Watch* watch = impl_->Find(fd);
  POSTRIDER_CHECK(watch != nullptr);
  if (watch->events == events) return;
  epoll_event event{};
  event.events = ToEpoll(events);
  event.data.u64 = Token(fd, watch->generation);
  POSTRIDER_CHECK(epoll_ctl(impl_->epoll_fd.get(), EPOLL_CTL_MOD, fd, &event) == 0);
  watch->events = events;
}

void EventLoop::Unwatch(int fd) {
  if (impl_->Find(fd) == nullptr) return;
  std::unique_ptr<Impl::Watch> watch = std::move(impl_->watches[static_cast<size_t>(fd)]);
  epoll_event event{};
  // It fails when the fd is closed already; the kernel has forgotten it by itself then.
  epoll_ctl(impl_->epoll_fd.get(), EPOLL_CTL_DEL, fd, &event);
  if (impl_->in_turn) impl_->retired_watches.push_back(std::move(watch));
}

TimerId EventLoop::CallAt(MonotonicTime time, Callback callback) {
  POSTRIDER_CHECK(callback != nullptr);
  const TimerId id = impl_->next_timer++;
  impl_->timers.emplace(id, std::move(callback));
  impl_->heap.push_back({time, id});
  std::push_heap(impl_->heap.begin(), impl_->heap.end(), LaterTimer());
  return id;
}

TimerId EventLoop::CallAfter(Duration delay, Callback callback) {
  return CallAt(SaturatedAdd(impl_->clock.Now(), delay), std::move(callback));
}

bool EventLoop::CancelTimer(TimerId id) {
  const auto found = impl_->timers.find(id);
  if (found == impl_->timers.end()) return false;
  // Destroyed last: what it owns may set or cancel timers.
  const Callback callback = std::move(found->second);
  impl_->timers.erase(found);
  impl_->CompactTimers();
  return true;
}

bool EventLoop::Post(Callback&& callback) {
  POSTRIDER_CHECK(callback != nullptr);
  bool first = false;
  {
    absl::MutexLock lock(&impl_->mutex);
    if (impl_->posted.size() >= kPostedMax) return false;
    first = impl_->posted.empty();
    impl_->posted.push_back(std::move(callback));
  }
  // The others find the loop woken already.
  if (first) impl_->Wake();
  return true;
}

void EventLoop::SetTurnEnd(absl::AnyInvocable<void()> callback) {
  std::unique_ptr<absl::AnyInvocable<void()>> old = std::move(impl_->turn_end);
  if (callback != nullptr) {
    impl_->turn_end = std::make_unique<absl::AnyInvocable<void()>>(std::move(callback));
  }
  if (impl_->in_turn && old != nullptr) impl_->retired_turn_ends.push_back(std::move(old));
}

size_t EventLoop::RunOnce(Duration wait_max) {
  POSTRIDER_CHECK(!impl_->in_turn);
  impl_->in_turn = true;
  const Duration began = RealTime();
  std::array<epoll_event, kEventsPerTurn> events;
  const int count = impl_->Wait(impl_->WaitTime(wait_max), events.data());
  const Duration woke = RealTime();

  size_t ran = impl_->RunFds(events.data(), count);
  ran += impl_->RunPosted();
  ran += impl_->RunTimers();
  if (impl_->turn_end != nullptr) (*impl_->turn_end)();
  impl_->BuryRetired();

  impl_->idle += woke - began;
  impl_->busy += RealTime() - woke;
  impl_->last_turn = impl_->clock.Now();
  impl_->in_turn = false;
  return ran;
}

void EventLoop::Run() {
  while (!impl_->stop.exchange(false)) RunOnce(kRunWaitMax);
}

void EventLoop::Stop() {
  impl_->stop.store(true);
  impl_->Wake();
}

Duration EventLoop::busy_time() const { return impl_->busy; }
Duration EventLoop::idle_time() const { return impl_->idle; }
MonotonicTime EventLoop::last_turn() const { return impl_->last_turn; }

}  // namespace postrider
