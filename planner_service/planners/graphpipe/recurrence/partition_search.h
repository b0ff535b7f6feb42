// GraphPipe's pipeline stage partitioner: the fewest devices that reach a given time per sample.
//
// Problem. Cut the operators into stages and choose replicas, micro-batch size and kFkB schedule of
// each, so that no stage needs more than t nanoseconds per sample, every stage fits into memory,
// and as few devices as possible are used. Algorithm 1 of the paper asks this question for the t
// of a binary search (`Minimize`).
//
// Notation.
//   paper                            here
//   t_max                            t
//   G                                a suffix [p, n) of a linear order of the operators
//   c = (i, b, k)                    StageConfig and StageChoice::in_flight
//   c_b = (i_b, b_b, k_b)            the needs of the frontier classes at p
//   d                                PartitionPoint::devices
//   C                                the configs given to the constructor
//   ESTIMATETPS                      StageTps
//   SCHEDULESTAGE (algorithm 2)      the needs, by ComputeInFlight
//   PICKBETTER                       PartitionFront::Insert
//
// Recurrence. Front(p) is the Pareto front of the partitions of [p, n) by (devices, needs), where
// need(k, c) is the number of samples that a stage with config c must keep in flight if it contains
// a member of frontier class k. Front(n) = {(0, no needs)}. For every q < p, config c and number of
// replicas d such that [q, p) meets t,
//   in_flight = max(k b, max of need(k, c) over the classes k with a member in [q, p)),
// and if that fits into memory, Front(q) takes up (devices + d, needs'), where need'(k', c') is the
// largest of need(parent of k', c') and, if k' has a successor in [q, p),
// ComputeInFlight(c', c, in_flight).
//
// Each time, only the fewest replicas d, without recomputation before with, that meet t and fit
// into memory are tried: more devices for the same range and needs are dominated.
//
// Bounds. A first pass (relaxed_search.h) finds the fewest devices Least(p) for [0, p), and from
// the other side for [p, n), of a relaxed question; if Least(n) exceeds the devices there is no
// answer. A second (nearer_bound.h) has a nearer bound Before(p) on the devices of [0, p);
// partitions of [p, n) with more devices than that leaves are not extended. Neither removes a
// partition that has an answer before it. Questions that were answered before are not asked again
// (known_answers.h). `Minimize` starts from the least t at which the first pass has an answer;
// mostly it is the best.
//
// Complexity. With n operators, R <= n log n the ranges that meet t (StageRanges), F the largest
// front and K the most frontier classes: O(n |C| log D) time for the first pass, O(R |C|) for the
// second and O(R |C| F^2 K) for the recurrence, with a factor |C| in what follows from different
// needs only (NeedRows); the bounds leave few ranges and small F. On a chain K = 1, on b parallel
// chains K = 2.
//
// Deviations from the paper (7 to 13: graphpipe.cc):
//  1. Linear order. One pass over a linear order that keeps branches together (depth first over the
//     series-parallel tree) instead of a recursion over series and parallel sub-graphs. A stage is
//     a contiguous range of that order. Every stage of the paper's space (consecutive children of a
//     series or parallel vertex) is one, so the result is never worse; on top come stages that
//     close a branch and go on behind the join (figure 9's stage that "necessarily contains the
//     concatenation"), stages that open with a fork, and stages that end one branch and begin the
//     next. `PartitionOptions::allowed` restricts the stages; tests use it to show equality with a
//     direct transcription of algorithm 1.
//  2. Exact needs. In-flight samples follow from the data dependencies between the stages
//     themselves (through the frontier classes) instead of one context per sub-graph, so they are
//     exact for stages that span branches and for graphs that are not series-parallel.
//  3. Pareto fronts. The value of a state is a Pareto front that minimises devices, not a table
//     over every number of devices.
//  4. Bounded fronts. A front keeps at most kMaxPoints points (the smallest by devices, then
//  needs).
//     Fronts of chains and of parallel chains stay far below it.
//  5. Idle devices. A time per sample is reached with the fewest devices; the others may stay idle.
//  6. Recomputation. A stage may run its forward pass again instead of keeping its tensors, which
//     the paper does not consider: a choice per stage, joint with t and memory.
//
// Reference: Jeon et al., "GraphPipe: Improving Performance and Scalability of DNN Training with
// Graph Pipeline Parallelism", ASPLOS 2025, sections 5, 6 and appendix A.1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/graphpipe/recurrence/known_answers.h"
#include "planner_service/planners/graphpipe/recurrence/nearer_bound.h"
#include "planner_service/planners/graphpipe/recurrence/need_rows.h"
#include "planner_service/planners/graphpipe/recurrence/partition.h"
#include "planner_service/planners/graphpipe/recurrence/partition_front.h"
#include "planner_service/planners/graphpipe/recurrence/relaxed_search.h"
#include "planner_service/planners/graphpipe/recurrence/stage_fit.h"
#include "planner_service/planners/graphpipe/recurrence/stage_ranges.h"
#include "planner_service/planners/graphpipe/recurrence/state_count.h"

namespace stagewright {

class PartitionSearch {
 public:
  // Arguments outlive the search; `ranges` has the edges that the stage graph will have.
  PartitionSearch(StageRanges& ranges, std::vector<StageConfig> configs, PartitionOptions options,
                  const SearchContext& context);
  // The same search with messages of another cost; both share the first pass.
  PartitionSearch(const PartitionSearch& other, Messages messages);
  PartitionSearch(const PartitionSearch&) = delete;

  // Nothing that `easier` fails to find exists for this search: it has the same ranges and configs,
  // and no stage of it takes longer or is allowed less. Outlives this search.
  void LearnFrom(const PartitionSearch& easier) { answers_.LearnFrom(easier.answers_); }
  // Frees what the last Find left for the next one.
  void Forget();

  // A partition with the fewest devices whose stages need at most `t` ns per sample; none if there
  // is none within the limits, or if the context expired.
  std::optional<Partition> Find(double t, const PartitionLimits& limits);

  // The partition with the least bottleneck up to a relative error of `precision`, among those with
  // bottleneck in [least, most].
  static constexpr double kPrecision = 1e-3;
  std::optional<Partition> Minimize(double least, double most, const PartitionLimits& limits,
                                    double precision = kPrecision);

  // ns per sample of a stage (StageFit::StageTps).
  double StageTps(int32_t begin, int32_t end, int32_t replicas, const StageConfig& config,
                  bool recompute = false) const {
    return fit_.StageTps(begin, end, replicas, config, recompute);
  }
  // No partition over `devices` devices is faster, ns per sample.
  double LowerBound(int32_t devices) const { return relaxed_->LowerBound(devices); }
  int64_t states() const { return states_.states(); }

 private:
  struct Step;  // A range with what it costs.
  PartitionSearch(StageRanges& ranges, std::shared_ptr<RelaxedSearch> relaxed,
                  PartitionOptions options, const SearchContext& context);
  std::optional<Partition> Learnt(double t, const PartitionLimits& limits) const;
  bool FillFronts(const PartitionLimits& limits);
  bool ExtendFrom(int32_t end, const PartitionLimits& limits);
  void Extend(const Step& step, int32_t first, const PartitionLimits& limits);
  int64_t InFlight(const Step& step, const NeedRows::Row* needs, int32_t config) const;
  void DeriveNeeds(const Step& step, const NeedRows::Row* needs_behind, int32_t config,
                   int64_t in_flight);
  Partition Assemble(int32_t point) const;

  StageRanges* ranges_;
  std::shared_ptr<RelaxedSearch> relaxed_;
  PartitionOptions options_;
  const SearchContext* context_;
  StageFit fit_;
  NearerBound bound_;
  KnownAnswers answers_;
  StateCount states_;
  std::vector<PartitionFront> fronts_;  // Front(p).
  NeedRows rows_;
  std::vector<NeedRows::Row> needs_;  // need', by class.
  bool truncated_ = false;            // A front lost a point beyond kMaxPoints.
};

}  // namespace stagewright
