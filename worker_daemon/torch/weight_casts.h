// Parameters in the smaller type of a mixed precision, for the operators that take them so.
//
// Under autocast an operator casts its weight each time it runs, and keeps the result for its
// backward pass: with many micro-batches in flight that is many copies of all weights. Here a
// weight is cast once after each change, and the operators of all micro-batches share the copy;
// gradients flow through it to the weight itself. The numbers are the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "common/base/ids.h"
#include "worker_daemon/torch/precision.h"

namespace stagewright {

// Not thread-safe.
class WeightCasts {
 public:
  // Nothing is cast for Precision::kGraph.
  explicit WeightCasts(Precision precision) : precision_(precision) {}

  // Whether autocast has operators of this target take all their tensors in the smaller type, on
  // CPUs and GPUs alike.
  bool Applies(const std::string& target) const;

  // `weight`, which is the parameter's present tensor or an older one, in the smaller type; itself
  // if it is not float32. Valid until the next call for the parameter.
  const at::Tensor& Get(ParameterId id, const at::Tensor& weight);

  void Clear() { casts_.clear(); }

 private:
  struct Cast {
    at::Tensor weight;     // Of which `copy` is one,
    int64_t version = -1;  // when it had been changed so often.
    at::Tensor copy;
  };
  Precision precision_;
  std::map<ParameterId, Cast> casts_;
};

}  // namespace stagewright
