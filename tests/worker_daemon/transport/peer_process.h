// A device in another process, which tests can stop and kill: the test program runs itself again
// with --peer. Both ends exchange addresses over a socket, and connect.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright::testing {

// What the process does once it is connected to device 0.
enum class PeerRole {
  kIdle,    // Nothing.
  kEcho,    // Returns each message: 8 bytes of size on channel 0, then that many on channel 1.
  kSource,  // Sends messages of kSourceBytes on channel 2 for ever.
  kLosing,  // Waits for a message that never comes; exits with 0 if told that device 0 is gone.
};

inline constexpr size_t kSourceBytes = size_t{8} << 20;

class PeerProcess {
 public:
  // `implementation` is a name in AllImplementations().
  PeerProcess(const std::string& implementation, int device, PeerRole role);
  ~PeerProcess();  // Kills it if it still runs.

  // Swaps addresses with `transport`. Connect to address() afterwards.
  void Exchange(const Transport& transport);
  const std::string& address() const { return address_; }

  void Signal(int signal) const;
  int Wait();  // The exit code, or -signal.

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string address_;
};

// What main does when called with --peer IMPLEMENTATION DEVICE ROLE.
int RunPeer(const std::string& implementation, int device, PeerRole role);

}  // namespace stagewright::testing
