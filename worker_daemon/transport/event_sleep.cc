#include "worker_daemon/transport/event_sleep.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

absl::Status NoFile(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

constexpr uint32_t kEachOnce = EPOLLIN | EPOLLET;
constexpr uint32_t kWhileReadable = EPOLLIN;

bool Add(int events_fd, int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  return epoll_ctl(events_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventSleep>> EventSleep::Create() {
  const int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) return NoFile("eventfd");
  const int events_fd = epoll_create1(EPOLL_CLOEXEC);
  std::unique_ptr<EventSleep> sleep(new EventSleep(wake_fd, events_fd));
  if (events_fd < 0) return NoFile("epoll_create1");
  if (!Add(events_fd, wake_fd, kEachOnce)) return NoFile("epoll_ctl");
  return sleep;
}

EventSleep::~EventSleep() {
  if (events_fd_ >= 0) close(events_fd_);
  close(wake_fd_);
}

void EventSleep::Watch(int event_fd, const std::vector<int>& others) {
  std::set<int> wanted(others.begin(), others.end());
  if (event_fd >= 0) wanted.insert(event_fd);
  for (const int fd : wanted) {
    if (!watched_.contains(fd)) Add(events_fd_, fd, fd == event_fd ? kEachOnce : kWhileReadable);
  }
  watched_ = std::move(wanted);
}

void EventSleep::SleepFor(absl::Duration longest) {
  const int64_t millis = absl::ToInt64Milliseconds(longest + absl::Microseconds(999));
  epoll_event event;
  epoll_wait(events_fd_, &event, 1, static_cast<int>(millis));
}

void EventSleep::Wake() {
  const uint64_t one = 1;
  // Only fails when the counter is full, which 2^64 - 2 calls take.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

}  // namespace stagewright
