// Whether training has stopped getting better. No LibTorch here.
#pragma once

#include <cstdint>

#include "common/training/evaluation_policy.h"
#include "worker_daemon/checkpoint/manifest.h"

namespace stagewright {

class EarlyStop {
 public:
  // `history` is that of the run that goes on.
  explicit EarlyStop(const EvaluationPolicy& policy, EvaluationHistory history = {})
      : policy_(policy), history_(history) {}

  // Takes the loss of the next evaluation; true: training is over. A loss that is not a number is
  // not better.
  bool IsOver(double loss) {
    if (loss < history_.best_loss - policy_.min_delta) {
      history_ = {loss, 0};
    } else {
      ++history_.since_best;
    }
    return policy_.patience > 0 && history_.since_best >= policy_.patience;
  }

  const EvaluationHistory& history() const { return history_; }

 private:
  EvaluationPolicy policy_;
  EvaluationHistory history_;
};

}  // namespace stagewright
