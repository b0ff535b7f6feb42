// What an operator of a published profile costs: measured, without arguments that could be run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"

namespace stagewright {

// A size that belongs to one neighbour of a node.
struct NeighborBytes {
  NodeId node;
  Bytes bytes = 0;
  friend bool operator==(const NeighborBytes&, const NeighborBytes&) = default;
};

// One measured way to run a planning-only node (Piper's "TMPC"): on several devices at once, or
// with its forward pass repeated. Per profiled micro-batch and device.
struct ProfiledConfiguration {
  int32_t tensor_parallel = 1;  // Devices that share the node's tensors.
  bool recompute = false;
  Nanos time = 0;  // Forward plus backward, the repeated forward pass included.
  Bytes parameter_bytes = 0;
  Bytes saved_bytes = 0;     // Piper's A: per micro-batch in flight.
  Bytes resident_bytes = 0;  // Piper's B: whatever the number in flight.
  // Beyond the edge's own bytes when the neighbour lies in another stage. Sorted by node.
  std::vector<NeighborBytes> sync_from;  // Predecessors.
  std::vector<NeighborBytes> sync_to;    // Successors.
  friend bool operator==(const ProfiledConfiguration&, const ProfiledConfiguration&) = default;
};

// Cost of a planning-only node per micro-batch of `samples` samples. The backward pass of a node
// with parameters splits into halves of equal length; that of any other is all input half.
struct ProfiledCost {
  Nanos forward = 0;
  Nanos backward = 0;
  Bytes activation_bytes = 0;  // Its output; the largest of `edge_bytes` where they are given.
  Bytes parameter_bytes = 0;
  int64_t samples = 1;
  // Kept from the forward to the backward pass; `activation_bytes` where unknown.
  std::optional<Bytes> saved_bytes;
  // Parameters, gradients, optimizer state and whatever else stays, for any optimizer; by
  // `parameter_bytes` and the optimizer where unknown.
  std::optional<Bytes> resident_bytes;
  // What each successor reads, sorted by node; empty where each reads the whole output.
  std::vector<NeighborBytes> edge_bytes;
  // Other ways to run the node; unique by (tensor_parallel, recompute) and sorted by them. Empty
  // where the profile has none. The figures above are those of one device without recomputation.
  std::vector<ProfiledConfiguration> configurations;
  friend bool operator==(const ProfiledCost&, const ProfiledCost&) = default;
};

}  // namespace stagewright
