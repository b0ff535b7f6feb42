// The operations of an ArrangedTransport: what each asks for, and which have not ended.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker_daemon/transport/arranged/arranger.h"
#include "worker_daemon/transport/arranged/device_mover.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

struct ArrangedOperation {
  MoverPart part;
  Tag tag;
  Transport::Done done;
};

// INVALID_ARGUMENT unless device `self` may start it: its tag is possible, and it is with others of
// the `group`, which is ascending; a collective of several devices, that its list is one of
// `lists`.
absl::Status CheckOperation(const ArrangedOperation& operation, int self,
                            const std::vector<int>& group, const std::set<std::vector<int>>& lists);

// What the arranger is told of it.
TransferOffer OfferOf(const ArrangedOperation& operation, int self, uint64_t id);

// INVALID_ARGUMENT with what its ends disagree on. REQUIRES: order.mismatch.
absl::Status MismatchOf(const ArrangedOperation& operation, int self, const TransferOrder& order);

// Invariant: an operation is here from Add until Remove, or as a refusal until TakeRefused; no
// number is used twice. Not thread-safe.
class PostedOperations {
 public:
  using Refusal = std::pair<Transport::Done, absl::Status>;

  // The number of the operation.
  uint64_t Add(ArrangedOperation operation);
  // Null if it has ended.
  const ArrangedOperation* Find(uint64_t id) const;
  // The `done` of an operation that ends. REQUIRES: Find(id).
  Transport::Done Remove(uint64_t id);
  // Those of all, by number.
  std::vector<Transport::Done> RemoveAll();
  bool empty() const { return operations_.empty(); }

  // An operation that ends without a start.
  void Refuse(Transport::Done done, absl::Status status);
  std::vector<Refusal> TakeRefused() { return std::exchange(refused_, {}); }
  bool any_refused() const { return !refused_.empty(); }

 private:
  uint64_t next_id_ = 1;
  std::map<uint64_t, ArrangedOperation> operations_;
  std::vector<Refusal> refused_;
};

}  // namespace stagewright
