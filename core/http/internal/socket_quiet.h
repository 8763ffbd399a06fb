#pragma once

#include <errno.h>
#include <sys/socket.h>

namespace postrider::internal {

// Whether there is nothing to be read from the connected socket now: neither bytes, nor an end, nor
// an error. A kept connection that is not quiet has ended, or brings what answers nothing.
inline bool IsQuiet(int fd) {
  char byte = 0;
  const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

}  // namespace postrider::internal
