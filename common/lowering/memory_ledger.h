// What the actions of one device acquire and release, told one after the other in the order of its
// program. The rules are those of lower.h ("Memory").
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/lowering/compute_order.h"
#include "common/lowering/lowering_context.h"

namespace stagewright {

struct MemoryChange {
  Bytes acquire = 0;  // When the action starts.
  Bytes release = 0;  // When it ends.
};

class MemoryLedger {
 public:
  // The context outlives the ledger.
  explicit MemoryLedger(LoweringContext& context);

  // Before anything runs, on a device with these stages. With weight stashing, `versions` of the
  // weights of its one stage. O(nodes of the stages) at the first call for them in a context.
  Bytes Resident(const std::vector<StageId>& stages, int64_t versions);

  // The part of Resident that other replicas hold, or that comes and goes with passes: optimizer
  // state, and gradients of planning-only nodes that are summed after every pass.
  Bytes SharedOut(const std::vector<StageId>& stages, DeviceId device) const;

  // A forward, recomputing or backward pass. O(pieces of its slot).
  MemoryChange Pass(const Task& task);

  Bytes ReceivedActivation(const Piece& piece) const;
  Bytes ReceivedGradient(const Piece& piece) const;
  // What goes once it has been sent.
  Bytes SentActivation(const Piece& piece) const;
  Bytes SentGradient(const Piece& piece) const;

  // What an optimizer step releases: the gradients that the stage's passes have made since the
  // last.
  Bytes Update(StageId stage);

 private:
  MemoryChange Forward(int32_t slot, const StageMemory& own) const;
  MemoryChange Backward(const Task& task, const StageMemory& own);
  Bytes FindResident(const std::vector<StageId>& stages, int64_t versions) const;
  bool HoldsOutputs(StageId stage) const;
  Bytes Received(const Channel& channel, Bytes bytes) const;
  Bytes JoinedBytes(int32_t slot) const;
  Bytes SummedBytes(int32_t slot) const;
  Bytes InputBytes(const Piece& piece) const;
  Bytes InputBytes(int32_t slot) const;
  Bytes NewGradients(StageId stage);
  bool Passes(ParameterId id) const { return !passes_.empty() && passes_[id.index()]; }

  LoweringContext& context_;
  std::vector<bool> has_gradients_;              // By stage: since the last update.
  std::vector<Bytes> gradients_;                 // By stage: those that its passes have made.
  absl::flat_hash_set<int32_t> with_gradients_;  // Parameters.
  std::vector<PassingBytes> passing_;            // By stage: that go after every pass.
  std::vector<bool> passes_;                     // Those of these parameters; empty: none.
};

}  // namespace stagewright
