#include "worker_daemon/torch/sample_view.h"

#include <ATen/ATen.h>

namespace stagewright {
namespace {

// The layout's dimension as [outer, samples, inner].
at::Tensor Unfold(const at::Tensor& tensor, SampleLayout layout, int64_t samples) {
  const int64_t inner = tensor.size(layout.dim) / (layout.outer * samples);
  return tensor.unflatten(layout.dim, {layout.outer, samples, inner});
}

at::Tensor Fold(const at::Tensor& unfolded, SampleLayout layout) {
  return unfolded.flatten(layout.dim, layout.dim + 2);
}

}  // namespace

at::Tensor SampleView(const at::Tensor& tensor, SampleLayout layout, SampleRange whole,
                      SampleRange piece) {
  return Unfold(tensor, layout, whole.size())
      .narrow(layout.dim + 1, piece.begin - whole.begin, piece.size());
}

at::Tensor CutSamples(const at::Tensor& tensor, SampleLayout layout, SampleRange whole,
                      SampleRange piece) {
  if (layout.outer > 1) return Fold(SampleView(tensor, layout, whole, piece), layout);
  const int64_t inner = tensor.size(layout.dim) / whole.size();
  return tensor.narrow(layout.dim, (piece.begin - whole.begin) * inner, piece.size() * inner);
}

at::Tensor JoinSamples(const std::vector<at::Tensor>& parts, const std::vector<int64_t>& samples,
                       SampleLayout layout) {
  if (layout.outer == 1) return at::cat(parts, layout.dim);
  std::vector<at::Tensor> unfolded;
  for (size_t i = 0; i < parts.size(); ++i)
    unfolded.push_back(Unfold(parts[i], layout, samples[i]));
  return Fold(at::cat(unfolded, layout.dim + 1), layout);
}

}  // namespace stagewright
