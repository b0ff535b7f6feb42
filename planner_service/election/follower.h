// A planner that follows: what it is asked and cannot know, the leader answers.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/channel/tls_files.h"
#include "planner_service/election/follower_planner.h"

namespace stagewright {

struct FollowerOptions {
  std::string listen;  // HOST:PORT; port 0 picks one.
  int max_message_mib = 64;
  TlsFiles tls;     // Its callers', as DoorOptions has them; empty: in the clear.
  TlsFiles leader;  // Its own certificate and whose the leader must be; empty: in the clear.
  std::shared_ptr<FollowerPlanner> planner;  // Answers what need not be passed on; null: nothing.
};

// Thread-safe. While no leader is known, calls are UNAVAILABLE.
class Follower {
 public:
  // UNAVAILABLE if the address is taken.
  static absl::StatusOr<std::unique_ptr<Follower>> Start(const FollowerOptions& options);
  // Ends calls after `grace`.
  virtual ~Follower() = default;
  virtual void Shutdown(absl::Duration grace) = 0;

  virtual std::string address() const = 0;
  // Where calls go from now on; empty: nowhere. Calls that went to another leader end with
  // UNAVAILABLE. Where none is known, they go on: it may lead all the same.
  virtual void Follow(const std::string& leader) = 0;
};

}  // namespace stagewright
