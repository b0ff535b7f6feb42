// The autograd graph of a micro-batch cut into segments, so that the two halves of its backward
// pass do no work twice.
//
// A node that takes a parameter that trains is a *parameter node*; nodes that depend on parameters
// and constants alone (a transposed weight) are the *parameter side*. Parameter nodes with equally
// many parameter nodes before them (on the longest path) form one segment, and so do the other
// nodes with equally many: every segment reads only segments of lower number, and no path leaves a
// segment and comes back. What one segment reads of another is cut off from its history; a Cut
// catches its gradient.
//
// The input half walks the segments from the last to the first and asks autograd for the gradients
// of what they read of activations only, which prunes those of the parameters. It keeps, for the
// weight half, the graphs of parameter nodes (which hold the nodes' inputs) and the gradients of
// their outputs; graphs of other segments are freed as soon as they have run. The weight half asks
// for the gradients of parameters, which prunes those of the activations, and ends with one pass
// over the parameter side.
//
// An operator that is one node but runs several dependent steps inside (a recurrent network) may
// repeat some of them in the weight half.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace stagewright {

// A node of a stage; places number the values that the stage receives or computes.
struct SegmentNode {
  std::vector<int32_t> reads, makes;  // Places.
  bool takes_parameter = false;       // That trains.
  bool takes_input = false;           // Of the graph.
};

// Which segment each node and value of a stage is in.
struct SegmentPlan {
  static constexpr int32_t kParameterSide = 0;

  int32_t segments = 1;                     // Even ones but the parameter side: parameter nodes.
  std::vector<int32_t> of_node;             // Parallel to the nodes.
  std::vector<int32_t> of_place;            // -1: received.
  std::vector<bool> crosses;                // By place: read by another segment, or given.
  std::vector<std::vector<int32_t>> reads;  // By segment: places of others, ascending.
  std::vector<std::vector<int32_t>> gives;  // By segment: its places that cross, ascending.

  bool HasParameters(int32_t segment) const { return segment % 2 == 0; }
};

// `nodes` in an order in which they can run; places below `received` come from outside; `given`
// are those whose gradient comes from outside. O(nodes + reads, sorted).
SegmentPlan PlanSegments(const std::vector<SegmentNode>& nodes, int32_t places, int32_t received,
                         const std::vector<int32_t>& given);

// Of one micro-batch. Functions throw what LibTorch throws.
class SegmentedGraph {
 public:
  explicit SegmentedGraph(const SegmentPlan& plan);
  SegmentedGraph(SegmentedGraph&&) noexcept;
  SegmentedGraph& operator=(SegmentedGraph&&) noexcept;
  ~SegmentedGraph();

  // During the forward pass. What other segments than its own see of `value`: without history, its
  // gradient caught. Undefined if no other sees it or it needs no gradient.
  at::Tensor CutOff(int32_t place, const at::Tensor& value);
  // The same of a received value that needs a gradient.
  at::Tensor CutOffReceived(int32_t place, const at::Tensor& value);

  // Whether a gradient can flow into the value: it crosses and needs one.
  bool Flows(int32_t place) const;
  // Gradients from outside, before BackwardInput. REQUIRES: Flows(place).
  void AddGradient(int32_t place, const at::Tensor& gradient);

  void BackwardInput();
  // Of a received value, after BackwardInput; undefined if nothing flowed back.
  at::Tensor TakeGradient(int32_t place);
  // Adds to the gradients of `parameters`, which are leaves. Call it once, after BackwardInput.
  void BackwardWeight(const std::vector<at::Tensor>& parameters);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagewright
