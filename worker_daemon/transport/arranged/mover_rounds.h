// What a device's mover has under way, as the operations that it belongs to.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_daemon/transport/arranged/device_mover.h"

namespace stagewright {

// Invariant: an operation is in the round being told, or in one that the mover has started, until
// it is handed out once as empty or ended. Used by one thread.
class MoverRounds {
 public:
  explicit MoverRounds(DeviceMover* mover) : mover_(mover) {}

  // A part of the round being told, of operation `id`.
  void Add(uint64_t id, MoverPart part);
  // The operations of that round which move nothing, and thus have ended. The mover takes no such
  // part.
  std::vector<uint64_t> TakeEmpty();
  // Starts the rest of that round, if there is any. An error is the mover's.
  absl::Status Start();

  // Operations that have ended since the last call. An error means that none will any more.
  absl::StatusOr<std::vector<uint64_t>> TakeEnded();

  // No round has been started that has not ended.
  bool idle() const { return in_flight_.empty(); }
  // The mover was stopped: forgets everything.
  void Clear();

 private:
  DeviceMover* const mover_;
  std::vector<std::pair<uint64_t, MoverPart>> round_;    // The one being told.
  std::map<uint64_t, std::vector<uint64_t>> in_flight_;  // By the mover's number.
};

}  // namespace stagewright
