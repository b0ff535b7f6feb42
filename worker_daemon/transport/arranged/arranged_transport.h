// A transport for the memory of accelerators, on top of one for host memory that carries the words
// about it.
//
// The mover (NCCL) knows neither tags nor a way to wait for several things at once. So every
// operation is offered to one device of the job, that with the lowest number, whose Arranger pairs
// sends with receives and orders both ends to start: see arranger.h for why that cannot deadlock.
// An operation thus costs a short message each way over the control transport before its data
// moves; these overlap with the transfers before it.
//
// Differences from other transports:
// - Connect must name all devices of the job generation that have one of these: they form one
//   group. FAILED_PRECONDITION if two of them have different ideas of it.
// - Send and Receive begin after what the caller had queued on the accelerator when it called
//   (DeviceMover::Mark), so that the caller need not wait for its kernels. What is queued there
//   must not itself wait for an operation of this transport. When `done` says OK the data is there,
//   also for what is queued from then on.
// - A send is done when the data has left; it does not start before its receive is posted.
// - The group ends with its first member: when a device is lost or leaves, all operations fail
//   with UNAVAILABLE naming it, also those between others. So keep it until all have finished.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/arranged/arranger.h"
#include "worker_daemon/transport/arranged/control_link.h"
#include "worker_daemon/transport/arranged/device_mover.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

class ArrangedTransport : public Transport {
 public:
  // `control` must outlive this; messages of Traffic::kArrangement on it are ours.
  ArrangedTransport(TransportIdentity identity, Transport* control,
                    std::unique_ptr<DeviceMover> mover);
  // Aborts the control transport, too. Pending operations fail with CANCELLED.
  ~ArrangedTransport() override;

  int device() const override { return identity_.device; }
  // Peers reach this through the control transport: it has no address of its own.
  std::string Address() const override { return ""; }
  // The control transport is connected to the peers already.
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override;
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override;
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override;
  void Abort(absl::Status status) override;  // The control transport as well.

  bool reduces() const override { return true; }
  void AllReduce(const std::vector<int>& devices, Tag tag, void* data, size_t count,
                 Element element, Done done) override;

  bool connected_to(int device) const;

 private:
  struct Operation {
    MoverPart part;
    Tag tag;
    Done done;
  };
  // Where it is in its life; it only goes forwards.
  enum class State {
    kNew,       // Before Connect.
    kJoining,   // Connect is under way, or failed for lack of time.
    kJoined,    // Operations run.
    kDraining,  // A peer was lost; what ends until drained_at_ is still done.
    kFailing,   // All operations are to fail now, with failure_.
    kFailed,    // They have failed, and new ones do.
    kStopped,   // The thread is to end.
  };

  absl::Status JoinGroup(const std::vector<int>& group, absl::Time deadline);
  absl::StatusOr<std::string> AwaitHello(const std::vector<int>& group, absl::Time deadline);
  void Post(Operation operation);
  absl::StatusOr<std::string> GroupNote(const std::vector<int>& devices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckReduction(const std::vector<int>& devices) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A peer was lost.
  void Drain(const absl::Status& status);

  // On the thread.
  void Loop();
  bool Work();
  void TakeOwnOrders(std::deque<TransferOrder>& orders);
  void Follow(const TransferOrder& order);
  void StartRound();
  absl::StatusOr<bool> CollectEnded();  // Whether anything has ended.
  void Fail(absl::Status status);
  void FailAll();
  void Finish(uint64_t id, absl::Status status);
  bool OwnOrderIsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !own_orders_.empty() && !untold_.contains(own_orders_.front().round);
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == State::kDraining || state_ == State::kFailing || state_ == State::kStopped ||
           !offers_.empty() || !orders_.empty() || !refused_.empty() || OwnOrderIsDue();
  }

  const TransportIdentity identity_;
  Transport* const control_;
  const std::unique_ptr<DeviceMover> mover_;
  std::unique_ptr<ControlLink> link_;

  absl::Mutex connecting_;  // Held while the mover connects; before mutex_.
  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // What Abort or the first lost peer said.
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;  // So that only the first Abort has an effect.
  absl::Time drained_at_ ABSL_GUARDED_BY(mutex_);
  // Ascending; empty before Connect, and after one that failed.
  std::vector<int> group_ ABSL_GUARDED_BY(mutex_);
  std::optional<GroupHello> hello_ ABSL_GUARDED_BY(mutex_);  // From the first of the group.
  std::map<std::vector<int>, std::string> group_notes_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Operation> operations_ ABSL_GUARDED_BY(mutex_);
  std::deque<TransferOffer> offers_ ABSL_GUARDED_BY(mutex_);  // For the arranger, if that is here.
  std::deque<TransferOrder> orders_ ABSL_GUARDED_BY(mutex_);  // For this device.
  // For this device, from the arranger here.
  std::deque<TransferOrder> own_orders_ ABSL_GUARDED_BY(mutex_);
  // Order messages that are on their way, by round.
  std::map<uint64_t, int> untold_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> refused_ ABSL_GUARDED_BY(mutex_);

  // Used by the thread alone.
  Arranger arranger_;
  std::vector<uint64_t> round_;                          // Operations of the round being told.
  std::map<uint64_t, std::vector<uint64_t>> in_flight_;  // By the mover's number.
  std::thread thread_;                                   // Last: uses the members above.
};

}  // namespace stagewright
