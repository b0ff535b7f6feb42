// What training steps were like, of a job that may have any number of them: every step up to a
// bound, then evenly fewer.
//
// With a stride of n the steps 1, 1 + n, 1 + 2n, ... are kept, and always the first and the last of
// all. When more are kept than the bound allows, the stride doubles. Which steps are kept depends
// on their numbers alone, so histories of the same steps agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

class StepHistory {
 public:
  static constexpr size_t kBound = 4096;  // Steps.

  // REQUIRES: bound >= 3.
  explicit StepHistory(size_t bound = kBound) : bound_(bound) {}
  // One that was written with ToProto; it goes on where that one was.
  static StepHistory FromProto(const v1::ListJobStepsResponse& proto);

  // Steps may come in any order; one that is known already is replaced. O(log bound), amortised.
  void Add(const v1::JobStep& step);
  // From now on at most every `stride`-th step is kept, a power of 2: others know no more of them.
  void Coarsen(int64_t stride);
  // Forgets all after `step`: training went back to it.
  void DropAfter(int64_t step);

  bool empty() const { return steps_.empty(); }
  bool Has(int64_t step) const { return steps_.contains(step); }
  int64_t stride() const { return stride_; }
  // The steps after `after_step`, ascending.
  v1::ListJobStepsResponse ToProto(int64_t after_step = 0) const;

 private:
  bool OnStride(int64_t step) const { return (step - 1) % stride_ == 0; }
  void Thin();

  size_t bound_;
  int64_t stride_ = 1;
  std::map<int64_t, v1::JobStep> steps_;
};

}  // namespace stagewright
