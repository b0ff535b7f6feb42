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
//   d                                Point::devices
//   C                                the configs given to the constructor
//   ESTIMATETPS                      StageTps
//   SCHEDULESTAGE (algorithm 2)      the needs, by ComputeInFlight
//   PICKBETTER                       Dominates, then less traffic, then less memory
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
// Bounds. A first pass (relaxed_search.h) answers a relaxed question: the fewest devices Least(p)
// for [0, p), and from the other side for [p, n), without messages and with every stage keeping
// only k b samples. If Least(n) exceeds the devices there is no answer. A second pass, worth its
// time only for several configs, goes over the ranges that these leave, notes the first option of
// each that meets t with its messages and may fit into memory, and so has a nearer bound Before(p)
// on the devices of [0, p); partitions of [p, n) with more devices than that leaves are not
// extended. Neither bound removes a partition that has an answer before it. `Minimize` searches
// with the first pass alone, and then with all from the t that it found; mostly that t itself is
// the answer.
//
// What was asked before. A search that found nothing for some t, devices and samples in flight
// finds nothing for less of each, nor does one whose stages take longer (LearnFrom); and where no
// range met t only because its messages are inside, Messages::kNetwork has the same answer. The
// second pass does not depend on the samples in flight and is kept while t stays.
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
//  4. Bounded fronts. A front keeps at most kMaxFront points (the smallest by devices, then needs).
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
#include "planner_service/planners/graphpipe/need_rows.h"
#include "planner_service/planners/graphpipe/relaxed_search.h"
#include "planner_service/planners/graphpipe/stage_ranges.h"

namespace stagewright {

struct StageChoice {
  int32_t begin = 0;  // Positions of the linear order.
  int32_t end = 0;
  int32_t replicas = 1;
  StageConfig config;
  int64_t in_flight = 0;  // Samples.
  bool recompute = false;
};

struct Partition {
  std::vector<StageChoice> stages;  // By position.
  int32_t devices = 0;
  double bottleneck = 0;  // Largest StageTps, ns per sample.
  int64_t deepest = 0;    // Most samples in flight in any stage.
};

// What a stage's messages cost, ascending.
enum class Messages {
  kInside,   // They overlap with compute and take the fastest links.
  kNetwork,  // They overlap, but pass the network, with a port per replica as
             // far as nodes go.
  kExposed,  // They pass the network, and nothing overlaps with them.
};

struct PartitionOptions {
  bool replicas = true;
  RecomputePolicy recompute = RecomputePolicy::kNever;
  int32_t max_stages = 0;     // 0: any number.
  bool exact_stages = false;  // Exactly max_stages.
  double memory_share = 1;    // Share of the smallest memory budget.
  Messages messages = Messages::kInside;
  // allowed[begin * (n + 1) + end]: the ranges that may be a stage; empty: all.
  std::vector<bool> allowed;
};

// What one call of Find may use.
struct PartitionLimits {
  int32_t devices = 1;
  int64_t in_flight = 0;  // Samples in any stage.
};

class PartitionSearch {
 public:
  static constexpr int32_t kMaxFront = 96;

  // Arguments outlive the search; `ranges` has the edges that the stage graph
  // will have.
  PartitionSearch(StageRanges& ranges, std::vector<StageConfig> configs, PartitionOptions options,
                  const SearchContext& context);

  // The search `other` with messages of another cost; both share the first pass.
  PartitionSearch(const PartitionSearch& other, Messages messages);

  // Nothing that `easier` fails to find exists for this search: it has the same
  // ranges and configs, and no stage of it takes longer or is allowed less.
  // Outlives this search.
  void LearnFrom(const PartitionSearch& easier) { easier_.push_back(&easier); }

  // Frees what the last Find left for the next one.
  void Forget();

  // A partition with the fewest devices whose stages need at most `t` ns per
  // sample; none if there is none within the limits, or if the context expired.
  std::optional<Partition> Find(double t, const PartitionLimits& limits);

  // The partition with the least bottleneck up to a relative error of
  // `precision`, among those with bottleneck in [least, most].
  static constexpr double kPrecision = 1e-3;
  std::optional<Partition> Minimize(double least, double most, const PartitionLimits& limits,
                                    double precision = kPrecision);

  // ns per sample of [begin, end) with `replicas` replicas: compute, its share
  // of the gradient sum, and no less than its messages take on the fastest
  // link.
  double StageTps(int32_t begin, int32_t end, int32_t replicas, const StageConfig& config,
                  bool recompute = false) const;

  // No partition over `devices` devices is faster, ns per sample.
  double LowerBound(int32_t devices) const { return relaxed_->LowerBound(devices); }
  int64_t states() const { return states_; }

 private:
  // What crosses the network for a stage with 2^index replicas.
  struct Network {
    double sum_latency = 0;       // Gradient sum, ns.
    double sum_per_byte = 0;      // Gradient sum, ns per byte.
    double message_per_byte = 0;  // Messages that overlap with compute, ns per byte.
    double exposed_per_byte = 0;  // Messages that do not overlap, ns per byte.
    double network_per_byte = 0;  // Messages of Messages::kNetwork, which overlap, ns per byte.
  };
  struct Point {
    int32_t devices = 0;
    int32_t stages = 0;
    int32_t end = 0;    // End of its first stage.
    int32_t rest = -1;  // The point of Front(end) that follows the first stage.
    int32_t option = -1;
    int64_t in_flight = 0;
    double traffic = 0;  // Bytes per sample over all boundaries.
    Bytes peak = 0;
  };
  struct Front {
    int32_t fewest_devices = 0;  // The fewest devices of any point.
    std::vector<Point> points;
    std::vector<NeedRows::Row> needs;  // By point and class.
  };
  PartitionSearch(StageRanges& ranges, std::shared_ptr<RelaxedSearch> relaxed,
                  PartitionOptions options, const SearchContext& context);
  void DescribeNetwork(const NetworkFacts& facts);
  struct Step;  // A range with what it costs.
  // A question without an answer.
  struct Refuted {
    double t = 0;
    PartitionLimits limits;
  };

  // An answer that Messages::kNetwork does not change.
  struct Found {
    double t = 0;
    PartitionLimits limits;
    Partition partition;
  };

  std::optional<Partition> Learnt(double t, const PartitionLimits& limits) const;
  bool Meets(const StageOption& option, const StageRanges::Range& range, int32_t end);
  bool IsRefuted(double t, const PartitionLimits& limits) const;
  bool Bound(int32_t devices);
  bool Allowed(int32_t begin, int32_t end) const {
    return options_.allowed.empty() || options_.allowed[begin * (oracle_->size() + 1) + end];
  }
  int32_t FirstOption(const StageRanges::Range& range, int32_t end, int32_t config,
                      int32_t most_replicas, int32_t& fastest);
  Bytes Memory(const StageOption& option, const StageRanges::Range& range, int32_t end,
               int64_t micro_batches_in_flight) const;
  bool Poll();
  bool ExtendFrom(int32_t end, const PartitionLimits& limits);
  void Extend(const Step& step, int32_t first, const PartitionLimits& limits);
  void DeriveNeeds(const Step& step, const NeedRows::Row* needs_behind, int32_t config,
                   int64_t in_flight);
  void Insert(Front& front, const Point& point, const std::vector<NeedRows::Row>& needs);
  int Compare(const Point& a, const NeedRows::Row* a_needs, const Point& b,
              const NeedRows::Row* b_needs, size_t width) const;
  Partition Assemble(int32_t point) const;
  double Tps(const StageOracle::Extent& extent, double compute, int32_t replicas) const;

  StageRanges* ranges_;
  const StageOracle* oracle_;
  const Frontier* frontier_;
  std::shared_ptr<RelaxedSearch> relaxed_;
  const std::vector<StageConfig>& configs_;
  const std::vector<StageOption>& choices_;
  const std::vector<int32_t>& choice_end_;
  PartitionOptions options_;
  const SearchContext* context_;
  int64_t mini_batch_;
  Bytes memory_;
  std::vector<Network> networks_;
  double t_ = 0;  // The t of the last Find, with kTimeSlack.
  // What the last second pass found: its t and devices (0: none), Before(p), and the first option
  // of each range, from row_begin_[end] on: [range][config].
  double bounded_ = -1;
  int32_t bounded_devices_ = 0;
  std::vector<int32_t> before_;
  std::vector<size_t> row_begin_;
  std::vector<int16_t> first_options_;
  std::vector<Front> fronts_;
  NeedRows rows_;
  std::vector<NeedRows::Row> scratch_;
  bool truncated_ = false;  // A front lost a point beyond kMaxFront.
  std::vector<Refuted> refuted_;
  std::vector<Found> found_;
  std::vector<const PartitionSearch*> easier_;
  // Whether a stage of the last Find, or of the last second pass, met t with
  // Messages::kInside that would not with kNetwork.
  bool messages_matter_ = false;
  bool messages_matter_in_bound_ = false;
  int64_t states_ = 0;
  int64_t next_poll_ = 0;
};

}  // namespace stagewright
