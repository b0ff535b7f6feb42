#include "worker_daemon/engine/mailbox.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker_daemon/engine/tensor_types.h"

namespace stagewright {
namespace {

absl::Status CannotCut() {
  return absl::InvalidArgumentError("a tensor without a batch dimension cannot be cut");
}

// Entries of the first dimension that belong to the samples of `piece`.
at::Tensor Rows(const at::Tensor& tensor, const TensorMeta& meta, SampleRange whole,
                SampleRange piece) {
  const int64_t entries = meta.shape[0].scale;
  return tensor.narrow(0, (piece.begin - whole.begin) * entries, piece.size() * entries);
}

}  // namespace

void Mailbox::Put(int32_t channel, Direction direction, TensorPiece piece) {
  absl::MutexLock lock(&mutex_);
  pieces_[{channel, direction, piece.samples}] = std::move(piece);
}

std::vector<TensorPiece> Mailbox::Take(int32_t channel, Direction direction, SampleRange range) {
  std::vector<TensorPiece> taken;
  absl::MutexLock lock(&mutex_);
  auto next = pieces_.lower_bound({channel, direction, {range.begin, range.begin}});
  while (next != pieces_.end()) {
    const auto& [piece_channel, piece_direction, samples] = next->first;
    if (piece_channel != channel || piece_direction != direction || samples.begin >= range.end)
      break;
    if (range.Contains(samples)) {
      taken.push_back(std::move(next->second));
      next = pieces_.erase(next);
    } else {
      ++next;
    }
  }
  return taken;
}

void Mailbox::Clear() {
  absl::MutexLock lock(&mutex_);
  pieces_.clear();
}

absl::StatusOr<at::Tensor> Cut(const at::Tensor& tensor, const TensorMeta& meta, SampleRange whole,
                               SampleRange piece) {
  if (!tensor.defined() || piece == whole) return tensor;
  if (!meta.IsBatched()) return CannotCut();
  return Rows(tensor, meta, whole, piece);
}

absl::StatusOr<at::Tensor> Join(std::vector<Part> parts, const TensorMeta& meta,
                                SampleRange range) {
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.samples < b.samples; });
  if (parts.size() == 1 && parts[0].samples == range) return parts[0].tensor;
  std::vector<at::Tensor> tensors;
  int64_t end = range.begin;
  for (Part& part : parts) {
    if (part.samples.begin != end) break;
    end = part.samples.end;
    tensors.push_back(std::move(part.tensor));
  }
  if (end != range.end || tensors.size() != parts.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the pieces that came do not make up samples [", range.begin, ",", range.end,
                     "); they are complete up to ", end));
  }
  if (!meta.IsBatched()) return CannotCut();
  const at::NoGradGuard no_grad;
  return at::cat(tensors, 0);
}

absl::StatusOr<at::Tensor> Sum(const std::vector<Part>& parts, const TensorMeta& meta,
                               SampleRange range) {
  const at::NoGradGuard no_grad;
  if (parts.empty()) return at::Tensor();
  if (parts.size() == 1 && parts[0].samples == range) return parts[0].tensor;
  at::Tensor sum = at::zeros(ShapeAt(meta, range.size()), parts[0].tensor.options());
  for (const Part& part : parts) {
    if (part.samples == range) {
      sum.add_(part.tensor);
    } else if (meta.IsBatched()) {
      Rows(sum, meta, range, part.samples).add_(part.tensor);
    } else {
      return CannotCut();
    }
  }
  return sum;
}

}  // namespace stagewright
