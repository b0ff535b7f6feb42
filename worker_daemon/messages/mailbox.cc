#include "worker_daemon/messages/mailbox.h"

#include <utility>

namespace stagewright {

void Mailbox::Put(int32_t channel, Direction direction, TensorPiece piece) {
  absl::MutexLock lock(&mutex_);
  pieces_[{channel, direction, piece.samples}] = std::move(piece);
}

std::vector<TensorPiece> Mailbox::Take(int32_t channel, Direction direction,
                                       const StepSamples& samples) {
  const SampleRange range = samples.range;
  std::vector<TensorPiece> taken;
  absl::MutexLock lock(&mutex_);
  auto next = pieces_.lower_bound({channel, direction, {samples.step, {range.begin, range.begin}}});
  while (next != pieces_.end()) {
    const auto& [piece_channel, piece_direction, piece] = next->first;
    if (piece_channel != channel || piece_direction != direction || piece.step != samples.step ||
        piece.range.begin >= range.end)
      break;
    if (range.Contains(piece.range)) {
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

}  // namespace stagewright
