// Whether training has stopped getting better. No LibTorch here.
#pragma once

#include <cstdint>
#include <limits>

namespace stagewright {

class EarlyStop {
 public:
  // See JobSpec. `patience` 0: never over.
  EarlyStop(int64_t patience, double min_delta) : patience_(patience), min_delta_(min_delta) {}

  // Takes the loss of the next evaluation; true: training is over. A loss that is not a number is
  // not better.
  bool IsOver(double loss) {
    if (loss < best_ - min_delta_) {
      best_ = loss;
      without_ = 0;
    } else {
      ++without_;
    }
    return patience_ > 0 && without_ >= patience_;
  }

 private:
  int64_t patience_;
  double min_delta_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t without_ = 0;  // Evaluations since the best one.
};

}  // namespace stagewright
