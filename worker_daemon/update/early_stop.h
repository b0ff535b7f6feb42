// Whether training has stopped getting better. No LibTorch here.
#pragma once

#include <cstdint>

#include "worker_daemon/checkpoint/manifest.h"

namespace stagewright {

class EarlyStop {
 public:
  // See JobSpec. `patience` 0: never over. `history` is that of the run that goes on.
  EarlyStop(int64_t patience, double min_delta, EvaluationHistory history = {})
      : patience_(patience), min_delta_(min_delta), history_(history) {}

  // Takes the loss of the next evaluation; true: training is over. A loss that is not a number is
  // not better.
  bool IsOver(double loss) {
    if (loss < history_.best_loss - min_delta_) {
      history_ = {loss, 0};
    } else {
      ++history_.since_best;
    }
    return patience_ > 0 && history_.since_best >= patience_;
  }

  const EvaluationHistory& history() const { return history_; }

 private:
  int64_t patience_;
  double min_delta_;
  EvaluationHistory history_;
};

}  // namespace stagewright
