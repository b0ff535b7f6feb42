// The second pass of the partition search (partition_search.h): the fewest devices of the
// operators before each position, with messages, at one t.
//
// It starts from what the first pass (relaxed_search.h) leaves, notes the first option of each
// range and config that meets t and may fit into memory, and does not depend on the samples in
// flight: it is kept while t stays. With a single config the first pass' answer is taken as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/planners/graphpipe/recurrence/partition.h"
#include "planner_service/planners/graphpipe/recurrence/relaxed_search.h"
#include "planner_service/planners/graphpipe/recurrence/stage_fit.h"
#include "planner_service/planners/graphpipe/recurrence/stage_ranges.h"
#include "planner_service/planners/graphpipe/recurrence/state_count.h"

namespace stagewright {

class NearerBound {
 public:
  // Arguments outlive the bound.
  NearerBound(StageRanges& ranges, RelaxedSearch& relaxed, const PartitionOptions& options)
      : ranges_(&ranges), relaxed_(&relaxed), partition_(&options) {}

  // For at most so many devices at fit.t(), for which the first pass is prepared. False if the
  // context expired. O(ranges that the first pass leaves * configs).
  bool Prepare(int32_t devices, StageFit& fit, StateCount& states);

  // Fewest devices of [0, position).
  int32_t Before(int32_t position) const { return before_[position]; }
  // By config, the first option of the `index`-th range that ends at `end`; -1: none.
  // REQUIRES: several configs.
  const int16_t* FirstOptions(int32_t end, size_t index) const {
    return first_options_.data() + row_begin_[end] + index * relaxed_->configs().size();
  }
  // Whether the answer would differ with Messages::kNetwork.
  bool messages_matter() const { return messages_matter_; }

  // Frees what is kept.
  void Forget();

 private:
  bool PrepareRow(int32_t end, int32_t devices, int32_t least_after, StageFit& fit,
                  StateCount& states);

  StageRanges* ranges_;
  RelaxedSearch* relaxed_;
  const PartitionOptions* partition_;
  double t_ = -1;
  int32_t devices_ = 0;  // 0: nothing is kept.
  std::vector<int32_t> before_;
  std::vector<size_t> row_begin_;
  std::vector<int16_t> first_options_;  // From row_begin_[end] on: [range][config].
  std::vector<int32_t> fastest_;        // By config, of the row that is being made.
  bool messages_matter_ = false;
};

}  // namespace stagewright
