// The autograd graph of a micro-batch cut into segments (common/memory/segments.h), so that the
// two halves of its backward pass do no work twice.
//
// What one segment reads of another is cut off from its history; a Cut catches its gradient. The
// input half walks the segments from the last to the first and asks autograd for the gradients of
// what they read of activations only, which prunes those of the parameters. It keeps, for the
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

#include "common/memory/segments.h"

namespace stagewright {

// The graph of one micro-batch. Functions throw what LibTorch throws.
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
