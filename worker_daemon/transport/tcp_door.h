// Keeps strangers from the ports at which UCX listens, once all peers have come in.
//
// UCX takes for granted that who connects speaks its protocol: frames that make no sense end the
// process (1.13: an assertion, or a jump to nowhere), before anything can be proved. It has no way
// to stop listening, but the system has: a filter on the socket that lets no packet in, and leaves
// connections alone that were there before.
#pragma once

#include <compare>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagewright {

// Not thread-safe. The sockets stay UCX's, which closes them with its worker.
class TcpDoor {
 public:
  struct Socket {
    int fd = -1;
    std::string port;  // As it is sent: two bytes.

    friend auto operator<=>(const Socket&, const Socket&) = default;
  };

  // Where this process listens for TCP. O(open descriptors).
  static std::set<Socket> Listening();

  TcpDoor() = default;
  // What listens besides `before` at a port that is in `address`, which UCX's address of a worker
  // names as two bytes in network order. Other threads may begin to listen meanwhile.
  TcpDoor(const std::set<Socket>& before, absl::string_view address);

  // From now on new connections are passed over, or taken again.
  void Close() const { Filter(/*closed=*/true); }
  void Open() const { Filter(/*closed=*/false); }

  size_t size() const { return sockets_.size(); }

 private:
  void Filter(bool closed) const;

  std::vector<Socket> sockets_;
};

}  // namespace stagewright
