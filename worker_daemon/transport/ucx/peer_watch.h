// Tells when a peer on this machine is gone: its process, or only its transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker_daemon/transport/ucx/life_line.h"
#include "worker_daemon/transport/ucx/process_watch.h"

namespace stagewright {

// Invariant: each end is told once. What cannot be watched never ends.
class PeerWatch {
 public:
  PeerWatch() = default;  // Watches nothing.
  // `process` is its ProcessName(), `life` its LifeLine::name(); either may be empty.
  PeerWatch(absl::string_view process, absl::string_view life);

  // What has ended since the last call: "its process ended", "its transport ended"; empty if
  // nothing has.
  std::string TakeEnd();

  // What becomes readable when something ends.
  std::vector<int> fds() const;

 private:
  std::unique_ptr<ProcessWatch> process_;  // Null where we cannot watch it, and once it ended.
  std::unique_ptr<LifeWatch> life_;        // Null where we cannot watch it, and once it ended.
};

}  // namespace stagewright
