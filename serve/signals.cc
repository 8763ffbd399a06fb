#include "serve/signals.h"

#include <signal.h>
#include <sys/signalfd.h>

#include "absl/status/status.h"

namespace postrider {

absl::StatusOr<int> WatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a limit of the file size is an error of the write
  const int fd = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) return absl::InternalError("cannot watch signals");
  return fd;
}

}  // namespace postrider
