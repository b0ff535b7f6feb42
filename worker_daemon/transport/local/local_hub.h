// Where the local transports of one job generation meet: pairs sends with receives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/progress_thread.h"
#include "worker_daemon/transport/reference_transport.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// One Send or Receive of a local transport.
struct LocalOperation {
  bool is_send = false;
  Tag tag;
  const void* source = nullptr;  // What a send reads.
  void* target = nullptr;        // What a receive writes.
  size_t bytes = 0;
  Transport::Done done;
  // By reference: no bytes, but the object of a send; `received` instead of `done` for a receive.
  bool by_reference = false;
  ReferenceTransport::Object object;
  ReferenceTransport::Received received;
};

// Thread-safe. A member is one transport; a device that leaves and joins again is a new member, so
// nothing sent to the old one can reach the new one.
class LocalHub {
 public:
  using MemberId = uint64_t;

  // The hub of this process for that generation of that job, made when first asked for, and gone
  // with its last user.
  static std::shared_ptr<LocalHub> For(const std::string& job, uint64_t generation);

  // `thread` runs the copies to the member and all its `done` callbacks, and must live until
  // AwaitIdle has returned.
  MemberId Join(int device, ProgressThread* thread);

  // OK if the member is there and stands for `device`; UNAVAILABLE if it left;
  // INVALID_ARGUMENT if it never was.
  absl::Status Find(MemberId member, int device) const;

  // Pairs the operation with its counterpart at `peer`, or keeps it until that comes.
  void Post(MemberId self, MemberId peer, LocalOperation operation);

  // Completes the operation with an error.
  void Fail(MemberId self, LocalOperation operation, absl::Status status);

  // All operations of the member, present and future, fail with `status`; those of others with it
  // fail with UNAVAILABLE. Copies that are under way finish. Only the first call counts.
  void Leave(MemberId self, const absl::Status& status);

  // Waits until every operation of the member is done.
  void AwaitIdle(MemberId self);

 private:
  struct Member {
    int device = 0;
    ProgressThread* thread = nullptr;
    absl::Status own_failure;   // What the member's own operations fail with, once it left.
    absl::Status peer_failure;  // What operations of others with it fail with.
    int64_t outstanding = 0;
  };
  struct Waiting {  // Operations of one tag are few, mostly one.
    std::vector<LocalOperation> sends;
    std::vector<LocalOperation> receives;
  };
  using Key = std::tuple<MemberId, MemberId, Tag, bool>;  // Sender, receiver, tag, by reference.

  void Finish(MemberId self, LocalOperation operation, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Transfer(const Key& key, LocalOperation send, LocalOperation receive)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndOne(MemberId self);

  mutable absl::Mutex mutex_;
  MemberId next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<MemberId, Member> members_ ABSL_GUARDED_BY(mutex_);  // Includes members that left.
  std::map<Key, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
