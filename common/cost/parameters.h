// What parameters cost while a job lasts.
#pragma once

#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/training/optimizer_sharding.h"
#include "common/training/optimizer_spec.h"
#include "common/training/precision.h"

namespace stagewright {

// Bytes that a stage holds for its parameters throughout a job: parameter, gradient and optimizer
// state.
Bytes ResidentBytes(const Parameter& parameter, Optimizer optimizer);

// ResidentBytes of a planning-only node; what its profile says whatever the optimizer, if it does.
Bytes ResidentBytes(const ProfiledCost& cost, Optimizer optimizer);

// The part of them that is optimizer state; 0 where a profile has one figure for everything.
Bytes OptimizerStateBytes(const Parameter& parameter, Optimizer optimizer);
Bytes OptimizerStateBytes(const ProfiledCost& cost, Optimizer optimizer);

// The part of them that is gradients, of a planning-only node; likewise.
Bytes GradientBytes(const ProfiledCost& cost);

// Bytes of a parameter's copy in the smaller type of a mixed precision, which operators take
// instead (common/training/autocast.h): 0 for what is not float32 or not mixed.
Bytes CastBytes(const Parameter& parameter, Precision precision);

// By parameter of the graph: some operator takes a copy in the smaller type. O(nodes).
std::vector<bool> CastParameters(const Graph& graph, Precision precision);

// What parameters take throughout a job.
struct HeldBytes {
  Bytes resident = 0;   // Parameter, gradient and optimizer state.
  Bytes gradients = 0;  // Summed by replicas.
  Bytes trained = 0;    // What the optimizer step goes over.
  int64_t updated = 0;  // Parameters that it updates.
  Bytes state = 0;      // The part of `resident` that is optimizer state.

  HeldBytes& operator+=(const HeldBytes& other) {
    resident += other.resident;
    gradients += other.gradients;
    trained += other.trained;
    updated += other.updated;
    state += other.state;
    return *this;
  }
  // `resident` on the one of `replicas` with the largest share.
  Bytes ResidentOn(int64_t replicas, OptimizerSharding sharding) const {
    if (sharding == OptimizerSharding::kNone || replicas < 2) return resident;
    return resident - state + (state + Bytes(replicas - 1)) / replicas;
  }
};
// By how much the most that a replica holds of gradients, their sums included, and of what one
// micro-batch saves lies below both together, where it keeps sums of its share alone between
// micro-batches: a backward pass makes the ones as it lets go of the other, taken to be spread
// alike over the operators. Negative where the sums take more than that. 0 for one replica.
Bytes PassingSaves(Bytes gradients, Bytes saved, int64_t replicas);

HeldBytes BytesHeld(const Parameter& parameter, Optimizer optimizer);
HeldBytes BytesHeld(const ProfiledCost& cost, Optimizer optimizer);

// At least: no gradient is there while all activations are saved, and what a profile says is held
// may be more than what an optimizer goes over.
// Where replicas share out the optimizer's state, however many they are.
HeldBytes LeastBytesHeld(const Parameter& parameter, Optimizer optimizer,
                         OptimizerSharding sharding = OptimizerSharding::kNone);
HeldBytes LeastBytesHeld(const ProfiledCost& cost, Optimizer optimizer,
                         OptimizerSharding sharding = OptimizerSharding::kNone);

// The parameters of a planning-only node: without a name, trained, float32.
Parameter ProfiledParameter(const ProfiledCost& cost);

// Parameters used by any of `nodes`, each once, by id.
std::vector<ParameterId> ParametersOf(const Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace stagewright
