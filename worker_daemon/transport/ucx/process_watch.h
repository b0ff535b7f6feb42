// Tells when another process of this machine ends.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace stagewright {

// Names this process among all processes that can see it: machine, process-id namespace, id and
// start time.
std::string ProcessName();

// Watches one process by a pidfd, which sees its end at once, even while nobody has reaped it (the
// keep-alive of UCX takes such a zombie for alive).
class ProcessWatch {
 public:
  // Null if `name` is not that of a process we can see: one on another machine or in another
  // process-id namespace, or if the system has no pidfds. A process that has ended already gives
  // a watch that says so.
  static std::unique_ptr<ProcessWatch> Open(absl::string_view name);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  bool Ended() const;

  // Becomes readable when the process ends; -1 if it has ended already.
  int fd() const { return fd_; }

 private:
  explicit ProcessWatch(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace stagewright
