// A planner that follows: what it is asked, the leader answers.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace stagewright {

// Thread-safe. While no leader is known, calls are UNAVAILABLE.
class Follower {
 public:
  // Listens on `listen` (HOST:PORT; port 0 picks one). UNAVAILABLE if that is taken.
  static absl::StatusOr<std::unique_ptr<Follower>> Start(const std::string& listen,
                                                         int max_message_mib);
  // Ends calls after `grace`.
  virtual ~Follower() = default;
  virtual void Shutdown(absl::Duration grace) = 0;

  virtual std::string address() const = 0;
  // Where calls go from now on; empty: nowhere.
  virtual void Follow(const std::string& leader) = 0;
};

}  // namespace stagewright
