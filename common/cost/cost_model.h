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
#include "common/training/precision.h"

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
  // In which types the passes compute that are asked about: memory is followed in them, too.
  virtual Precision precision() const { return Precision::kGraph; }
  // "analytic roofline" or "profile measured 2026-01-01 on ...": provenance for people.
  virtual std::string Description() const = 0;
};

}  // namespace stagewright
