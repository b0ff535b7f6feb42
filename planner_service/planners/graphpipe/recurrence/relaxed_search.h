// The first pass of the partition search (partition_search.h, "Bounds"): the fewest devices for
// which every stage meets t if messages cost nothing and every stage keeps only k b samples.
//
// What it asks of a range only grows with the range, so for each option the longest stage that ends
// at p follows by a moving pointer, and Least(p) = min over the options of Least(begin of that
// stage) + replicas. Messages play no part, so searches that differ only in those share one.
// Complexity: O(n |options|) time for one t, and as much memory for each of the last few.
#pragma once

#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/graphpipe/recurrence/need_rows.h"
#include "planner_service/planners/graphpipe/recurrence/stage_ranges.h"

namespace stagewright {

// Rounding of sums of nanoseconds must not decide.
inline constexpr double kTimeSlack = 1 + 1e-9;

// One way to run a stage.
struct StageOption {
  int32_t config = 0;
  int32_t replicas = 1;
  bool recompute = false;
  int64_t share = 1;          // Samples of a micro-batch that one replica runs.
  double samples = 1;         // Samples of a micro-batch.
  int64_t micro_batches = 1;  // In the mini-batch.
  const ShareCosts* costs = nullptr;
  // ns per sample.
  double Compute(int32_t begin, int32_t end) const {
    const double time = costs->Time(begin, end);
    return (recompute ? time + costs->Forward(begin, end) : time) / samples;
  }
};

class RelaxedSearch {
 public:
  // More devices than there are.
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max() / 4;

  // `ranges` outlives the search; `memory` is the budget of a stage.
  RelaxedSearch(const StageRanges& ranges, std::vector<StageConfig> configs, bool replicas,
                RecomputePolicy recompute, Bytes memory);

  const std::vector<StageConfig>& configs() const { return configs_; }
  // By config, replicas, recomputation; those of a config end at option_ends()[config].
  const std::vector<StageOption>& options() const { return options_; }
  const std::vector<int32_t>& option_ends() const { return option_ends_; }
  Bytes memory() const { return memory_; }

  // No partition over `devices` devices is faster, ns per sample: its work over the devices, and
  // its slowest operator.
  double LowerBound(int32_t devices) const;

  // Fewest devices for the whole order at t, which is prepared from then on; kNone: no number.
  int32_t Least(double t);
  // What that is in work.
  Nanos WorkOfLeast() const {
    return work::kFirstPassOption * int64_t{ranges_->oracle().size()} * std::ssize(options_);
  }
  // Fewest devices for [0, end) at the prepared t.
  int32_t LeastBefore(int32_t end) const { return prepared().before[end]; }
  const std::vector<int32_t>& before() const { return prepared().before; }
  // Fewest devices for [begin, n) at the prepared t, by begin.
  std::vector<int32_t> After() const;
  // No stage [begin, end) begins earlier.
  int32_t Reach(int32_t end) const { return prepared().reach[end]; }

  // The least t, up to a relative `precision`, at which so many devices may do; infinity beyond
  // `most`. The optimum mostly lies close above LowerBound.
  double LeastTime(int32_t devices, double most, double precision, const SearchContext& context);

 private:
  // What the first pass finds for one t. The last few are kept: the next t mostly lies between two
  // of them.
  struct Prepared {
    double t = -1;
    std::vector<int32_t> before;
    std::vector<int32_t> reach;
    // [useful option][end]: where the longest stage begins; `end`: none.
    std::vector<int32_t> longest;
  };
  static constexpr size_t kMostKept = 8;

  const Prepared& prepared() const { return kept_[current_]; }
  void MakeOptions(bool replicas, RecomputePolicy recompute);
  void FitIntoMemory();
  void AddUpWork();
  std::vector<int32_t> FindLongest(double t) const;

  const StageRanges* ranges_;
  std::vector<StageConfig> configs_;
  Bytes memory_;
  std::vector<StageOption> options_;
  std::vector<int32_t> option_ends_;
  // What follows is filled when the first t comes.
  std::vector<int32_t> useful_;     // Options without those that recompute needlessly.
  std::vector<int32_t> fits_from_;  // [useful option][end]: the first begin that memory allows.
  double work_ = 0;                 // Device-ns per sample, at the least.
  double largest_operator_ = 0;     // Least ns per sample of the slowest operator.
  std::vector<Prepared> kept_{1};
  size_t current_ = 0;  // The prepared t.
  size_t oldest_ = 0;
  std::map<int32_t, double> least_time_;  // By devices.
};

}  // namespace stagewright
