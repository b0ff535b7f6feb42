// Samples of tensors wherever they lie: TensorMeta::Samples says where.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/base/sample_range.h"
#include "common/graph/tensor.h"

namespace stagewright {

// The samples `piece` of a tensor that holds `whole`, as [..., outer, samples, inner, ...] where
// the layout's dimension was. A view.
at::Tensor SampleView(const at::Tensor& tensor, SampleLayout layout, SampleRange whole,
                      SampleRange piece);

// The same in the tensor's own dimensions; a view if the samples lie side by side.
at::Tensor CutSamples(const at::Tensor& tensor, SampleLayout layout, SampleRange whole,
                      SampleRange piece);

// A tensor of several, one after the other, each with the number of samples given for it.
at::Tensor JoinSamples(const std::vector<at::Tensor>& parts, const std::vector<int64_t>& samples,
                       SampleLayout layout);

}  // namespace stagewright
