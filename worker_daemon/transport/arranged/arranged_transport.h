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
//   must not itself wait for an operation of this transport. What gives data away is offered to the
//   arranger only when that has been passed: a round that waits for a kernel would keep both of its
//   ends from all later ones. When `done` says OK the data is there, also for what is queued from
//   then on.
// - A send is done when the data has left; it does not start before its receive is posted.
// - The group ends with its first member: when a device is lost or leaves, all operations fail
//   with UNAVAILABLE naming it, also those between others. So keep it until all have finished.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/arranged/arranged_life.h"
#include "worker_daemon/transport/arranged/arranger.h"
#include "worker_daemon/transport/arranged/control_link.h"
#include "worker_daemon/transport/arranged/device_mover.h"
#include "worker_daemon/transport/arranged/hosted_arranger.h"
#include "worker_daemon/transport/arranged/mover_rounds.h"
#include "worker_daemon/transport/arranged/posted_operations.h"
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

  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                               absl::Time deadline) override;
  bool reduces() const override { return true; }
  void RunCollective(Collective collective, const std::vector<int>& devices, Tag tag, void* data,
                     size_t count, Element element, Done done) override;

  bool connected_to(int device) const;

 private:
  // All devices that take part in operations.
  struct Group {
    std::vector<int> devices;         // Ascending; empty before Connect, and after one that failed.
    std::optional<GroupHello> hello;  // From the first of them.
    std::set<std::vector<int>> lists;  // Among which collectives were opened.
  };

  absl::Status JoinGroup(const MoverGroup& group, absl::Time deadline);
  absl::StatusOr<std::string> AwaitHello(const std::vector<int>& devices, absl::Time deadline);
  void Post(ArrangedOperation operation);
  // Under the lock, so that offers of equal tags reach the arranger in the order of posting.
  void Tell(const TransferOffer& offer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells of what is held and may be offered now; whether there was any.
  bool TellReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A peer was lost.
  void Drain(const absl::Status& status);

  // On the thread.
  void Loop();
  void Pause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Work();
  void TellOthers(const std::vector<TransferOrder>& orders);
  void Follow(const TransferOrder& order);
  void StartRound();
  absl::StatusOr<bool> CollectEnded();  // Whether anything has ended.
  void Fail(const absl::Status& status);
  void FailAll();
  void Finish(uint64_t id, absl::Status status);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TransportIdentity identity_;
  Transport* const control_;
  const std::unique_ptr<DeviceMover> mover_;
  std::unique_ptr<ControlLink> link_;

  absl::Mutex connecting_;  // Held while the mover connects; before mutex_.
  mutable absl::Mutex mutex_;
  ArrangedLife life_ ABSL_GUARDED_BY(mutex_);
  Group group_ ABSL_GUARDED_BY(mutex_);
  PostedOperations operations_ ABSL_GUARDED_BY(mutex_);
  std::deque<TransferOffer> held_ ABSL_GUARDED_BY(mutex_);    // Their data is not there yet.
  HostedArranger arranger_ ABSL_GUARDED_BY(mutex_);           // Idle unless the arranger is here.
  std::deque<TransferOrder> orders_ ABSL_GUARDED_BY(mutex_);  // From the arranger elsewhere.

  MoverRounds rounds_;  // Used by the thread alone.
  std::thread thread_;  // Last: uses the members above.
};

}  // namespace stagewright
