// Tells, inside one machine, when a transport of another process (or of this one) ends, even if its
// last message never arrives.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace stagewright {

// Held by a transport while it lives: a listening socket that never accepts. What connected to it
// is hung up on when the socket closes, be it that the transport ends or the process dies.
class LifeLine {
 public:
  // Null if the system gives us no such socket.
  static std::unique_ptr<LifeLine> Create();
  ~LifeLine();
  LifeLine(const LifeLine&) = delete;
  LifeLine& operator=(const LifeLine&) = delete;

  // Machine, network namespace and socket.
  const std::string& name() const { return name_; }

 private:
  LifeLine(int fd, std::string name);

  const int fd_;
  const std::string name_;
};

class LifeWatch {
 public:
  // Null if `name` is not one that we can reach: on another machine, in another network namespace,
  // or empty. A life line that has ended already gives a watch that says so.
  static std::unique_ptr<LifeWatch> Open(absl::string_view name);
  ~LifeWatch();
  LifeWatch(const LifeWatch&) = delete;
  LifeWatch& operator=(const LifeWatch&) = delete;

  bool Ended() const;

  // Becomes readable when the life line ends; -1 if it has ended already.
  int fd() const { return fd_; }

 private:
  explicit LifeWatch(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace stagewright
