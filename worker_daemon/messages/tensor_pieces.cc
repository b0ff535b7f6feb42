#include "worker_daemon/messages/tensor_pieces.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker_daemon/torch/operator_call.h"
#include "worker_daemon/torch/sample_view.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {
namespace {

absl::Status CannotCut(const TensorMeta& meta) {
  return absl::InvalidArgumentError(
      meta.mixed ? "a tensor whose entries belong to no sample alone cannot be cut"
                 : "a tensor that does not have its samples along one dimension cannot be cut");
}

}  // namespace

Direction DirectionOf(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kReceiveActivation
             ? Direction::kActivation
             : Direction::kGradient;
}

const std::vector<ValueRef>& ValuesOf(const Channel& channel, Direction direction) {
  return direction == Direction::kActivation ? channel.values : channel.gradient_values;
}

std::optional<size_t> IndexOf(const std::vector<ValueRef>& sorted, ValueRef value) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), value);
  if (found == sorted.end() || *found != value) return std::nullopt;
  return static_cast<size_t>(found - sorted.begin());
}

absl::StatusOr<at::Tensor> Cut(const at::Tensor& tensor, const TensorMeta& meta, SampleRange whole,
                               SampleRange piece) {
  if (!tensor.defined() || piece == whole) return tensor;
  const std::optional<SampleLayout> layout = meta.Samples();
  if (!layout.has_value()) return CannotCut(meta);
  return CutSamples(tensor, *layout, whole, piece);
}

absl::StatusOr<at::Tensor> Join(std::vector<Part> parts, const TensorMeta& meta,
                                SampleRange range) {
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.samples < b.samples; });
  if (parts.size() == 1 && parts[0].samples == range) return parts[0].tensor;
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> samples;
  int64_t end = range.begin;
  for (Part& part : parts) {
    if (part.samples.begin != end) break;
    end = part.samples.end;
    samples.push_back(part.samples.size());
    tensors.push_back(std::move(part.tensor));
  }
  if (end != range.end || tensors.size() != parts.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the pieces that came do not make up samples [", range.begin, ",", range.end,
                     "); they are complete up to ", end));
  }
  const std::optional<SampleLayout> layout = meta.Samples();
  if (!layout.has_value()) return CannotCut(meta);
  const at::NoGradGuard no_grad;
  return JoinSamples(tensors, samples, *layout);
}

absl::StatusOr<at::Tensor> Sum(const std::vector<Part>& parts, const TensorMeta& meta,
                               SampleRange range) {
  const at::NoGradGuard no_grad;
  if (parts.empty()) return at::Tensor();
  if (parts.size() == 1 && parts[0].samples == range) return parts[0].tensor;
  const std::optional<SampleLayout> layout = meta.Samples();
  at::Tensor sum = at::zeros(ShapeAt(meta, range.size()), parts[0].tensor.options());
  for (const Part& part : parts) {
    if (part.samples == range) {
      sum.add_(part.tensor);
    } else if (layout.has_value()) {
      const at::Tensor own = SampleView(part.tensor, *layout, part.samples, part.samples);
      SampleView(sum, *layout, range, part.samples).add_(own);
    } else {
      return CannotCut(meta);
    }
  }
  return sum;
}

absl::StatusOr<std::vector<at::Tensor>> CutForChannel(const PassResult& result, const Graph& graph,
                                                      const Program& program, int32_t channel,
                                                      Direction direction, SampleRange piece) {
  std::vector<at::Tensor> pieces;
  for (ValueRef value : ValuesOf(program.channels[channel], direction)) {
    const std::optional<size_t> index = IndexOf(*result.values, value);
    if (!index.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("channel ", channel, " carries ", NameOf(graph.node(value.node)),
                       ", which the stages it joins do not exchange"));
    }
    auto cut = Cut(result.tensors[*index], graph.meta(value), result.samples, piece);
    if (!cut.ok()) return Annotate(cut.status(), NameOf(graph.node(value.node)));
    pieces.push_back(*std::move(cut));
  }
  return pieces;
}

}  // namespace stagewright
