// What work costs: pure queries. (node, device kind, samples) -> time and bytes. Times from a
// profile measured by a worker or from the analytic roofline; bytes from the graph's shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/topology/cluster.h"
#include "common/training/optimizer_spec.h"

namespace stagewright {

struct OperatorTime {
  Nanos forward = 0;
  Nanos backward = 0;        // Whole backward pass; 0 where nothing upstream trains.
  Nanos backward_input = 0;  // Its two halves where known; input + weight = backward.
  Nanos backward_weight = 0;

  OperatorTime& operator+=(const OperatorTime& other) {
    forward += other.forward;
    backward += other.backward;
    backward_input += other.backward_input;
    backward_weight += other.backward_weight;
    return *this;
  }
};

// Share of a device's peak that large kernels reach: what a measured rate is divided by to name a
// peak.
inline constexpr double kPeakShare = 0.6;

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Time of one node on one micro-batch share of `samples` samples (>= 0; 0 costs nothing).
  virtual OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const = 0;
  // Bytes that the forward pass of `samples` samples keeps until the backward pass of the same
  // samples is done.
  virtual Bytes SavedBytes(NodeId node, int64_t samples) const = 0;
  // Bytes needed beyond saved tensors while the node runs forward or backward, gradients of its
  // parameters included.
  virtual Bytes WorkspaceBytes(NodeId node, int64_t samples) const = 0;
  // "analytic (v100-16g at 50 % of peak)" or "profile measured 2026-01-01 on ...": provenance for
  // people.
  virtual std::string Description() const = 0;
};

// Roofline: time = overhead + max(flops / (peak * efficiency(flops)), bytes / bandwidth),
// efficiency(w) = e * w / (w + half). Figures for planning-only nodes scale their profiled cost
// linearly with the samples, whatever the kind of device; their backward pass splits as
// ProfiledCost says. The graph must outlive the model.
std::unique_ptr<CostModel> MakeAnalyticCostModel(const Graph& graph);

// Floating-point operations of the forward pass of one node; exact for matrix products,
// convolutions and attention, one per output element otherwise.
double ForwardFlops(const Graph& graph, NodeId node, int64_t samples);

// Bytes that a stage holds for its parameters throughout a job: parameter, gradient and optimizer
// state.
Bytes ResidentBytes(const Parameter& parameter, Optimizer optimizer);

// The same of a planning-only node; what its profile says whatever the optimizer, if it does.
Bytes ResidentBytes(const ProfiledCost& cost, Optimizer optimizer);

// The parameters of a planning-only node: without a name, trained, float32.
Parameter ProfiledParameter(const ProfiledCost& cost);

// Parameters used by any of `nodes`, each once, by id.
std::vector<ParameterId> ParametersOf(const Graph& graph, const std::vector<NodeId>& nodes);

// A weight per node for Coarsen(): analytic forward + backward time on `kind` at `samples`.
std::vector<double> NodeWeights(const Graph& graph, const CostModel& costs, const DeviceKind& kind,
                                int64_t samples);

}  // namespace stagewright
