// What moves data between the memories of accelerators, in an order that somebody else has chosen:
// NCCL (nccl_mover.h); in tests, a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// What one device does in a round (arranger.h).
struct MoverPart {
  enum class Kind { kSend, kReceive, kReduce };

  Kind kind = Kind::kSend;
  int peer = 0;          // The other end of a send or receive.
  void* data = nullptr;  // Not written to by sends.
  size_t bytes = 0;
  std::shared_ptr<void> after;  // From Mark(): not before this.
  // Who takes part in a reduction, which is in place, and what it is.
  std::vector<int> devices;
  Collective collective = Collective::kAllReduce;
  Element element = Element::kFloat32;
};

// The devices that meet, the same for all of them but for who asks.
struct MoverGroup {
  int self = 0;              // One of the devices.
  std::vector<int> devices;  // Ascending.
  // Those that `self` sends to or receives from, and they to or from it.
  std::vector<int> partners;
};

// One thread at a time calls Connect, OpenCollectives, Start, Ended and Stop; any thread the
// others.
class DeviceMover {
 public:
  virtual ~DeviceMover() = default;

  // Bytes, at most kMaxNote, by which the devices of a group find each other. One of them makes the
  // note and hands it to the others.
  static constexpr size_t kMaxNote = 128;
  virtual absl::StatusOr<std::string> MakeNote() = 0;

  // Meets the other devices: all of them call it. Returns once data has gone both ways between this
  // device and each of its partners.
  virtual absl::Status Connect(const MoverGroup& group, const std::string& note,
                               absl::Time deadline) = 0;

  // Makes collectives possible among each of `lists`. All devices of the group call it, with equal
  // lists, also those that are in none, while nothing is under way. Returns once data has gone
  // among every list that this device is in.
  virtual absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                                       absl::Time deadline) = 0;

  // Stands for what the caller has queued on the accelerator so far: a part with this mark waits
  // for that.
  virtual std::shared_ptr<void> Mark() = 0;
  // Whether the accelerator has done what the mark stands for.
  virtual bool Passed(const std::shared_ptr<void>& mark) = 0;

  // Starts the parts of a round, all at the same time, after those of all earlier rounds, and
  // returns a number for it. At most one send and one receive, or one reduction; none is empty.
  virtual absl::StatusOr<uint64_t> Start(const std::vector<MoverPart>& parts) = 0;

  // The rounds that have ended since the last call. An error means that nothing will end any more.
  virtual absl::StatusOr<std::vector<uint64_t>> Ended() = 0;

  // From `when` on makes a Connect, OpenCollectives or Start that is under way return soon, with an
  // error. The earliest call counts.
  virtual void InterruptAt(absl::Time when) = 0;

  // Gives up on all that has not ended: on return nothing touches the memory of any part.
  virtual void Stop() = 0;
};

}  // namespace stagewright
