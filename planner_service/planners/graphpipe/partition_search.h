// GraphPipe's pipeline stage partitioner: the fewest devices that reach a given time per sample.
//
// Problem. Cut the operators into stages and choose replicas, micro-batch size and kFkB schedule of
// each, so that no stage needs more than t nanoseconds per sample, every stage fits into memory,
// and as few devices as possible are used. Algorithm 1 of the paper asks this question for the t of
// a binary search (`Minimize`).
//
// Notation.
//   paper                          here
//   t_max                          t
//   G                              a suffix [p, n) of a linear order of the operators
//   c = (i, b, k)                  StageConfig and StageChoice::in_flight
//   c_b = (i_b, b_b, k_b)          the needs of the frontier classes at p
//   d                              Point::devices
//   C                              the configs given to the constructor
//   ESTIMATETPS                    StageTps
//   SCHEDULESTAGE (algorithm 2)    the needs, by ComputeInFlight
//   PICKBETTER                     Dominates, then less traffic, then less memory
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
// Complexity. With n operators, L the most operators of a stage that meets t, F the largest front
// and K the most frontier classes: O(n L |C| log(D) F (F + K |C|)) time. On a chain K = 1, on b
// parallel chains K = 2.
//
// Deviations from the paper.
//  1. One pass over a linear order that keeps branches together (depth first over the
//     series-parallel tree) instead of a recursion over series and parallel sub-graphs. A stage is
//     a contiguous range of that order. Every stage of the paper's space (consecutive children of a
//     series or parallel vertex) is one, so the result is never worse; on top come stages that
//     close a branch and go on behind the join (figure 9's stage that "necessarily contains the
//     concatenation"), stages that open with a fork, and stages that end one branch and begin the
//     next. `PartitionOptions::allowed` restricts the stages; tests use it to show equality with a
//     direct transcription of algorithm 1.
//  2. In-flight samples follow from the data dependencies between the stages themselves (through
//     the frontier classes) instead of one context per sub-graph, so they are exact for stages that
//     span branches and for graphs that are not series-parallel.
//  3. The value of a state is a Pareto front that minimises devices, not a table over every number
//     of devices.
//  4. A front keeps at most kMaxFront points (the smallest by devices, then needs). Fronts of
//     chains and of parallel chains stay far below it.
//  5. Devices may stay idle: t is reached with the fewest devices.
//
// Reference: Jeon et al., "GraphPipe: Improving Performance and Scalability of DNN Training with
// Graph Pipeline Parallelism", ASPLOS 2025, sections 5, 6 and appendix A.1.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/search/frontier.h"
#include "planner_service/search/stage_oracle.h"

namespace stagewright {

// b and k of a stage.
struct StageConfig {
  int64_t micro_batch = 1;
  int32_t k = 1;
  friend auto operator<=>(const StageConfig&, const StageConfig&) = default;
};

struct StageChoice {
  int32_t begin = 0;  // Positions of the linear order.
  int32_t end = 0;
  int32_t replicas = 1;
  StageConfig config;
  int64_t in_flight = 0;  // Samples.
};

struct Partition {
  std::vector<StageChoice> stages;  // By position.
  int32_t devices = 0;
  double bottleneck = 0;  // Largest StageTps, ns per sample.
  int64_t deepest = 0;    // Most samples in flight in any stage.
};

struct PartitionOptions {
  bool replicas = true;
  int32_t max_stages = 0;     // 0: any number.
  bool exact_stages = false;  // Exactly max_stages.
  double memory_share = 1;    // Of the smallest memory budget.
  // This share of the time of a stage's messages over the network counts as if nothing overlapped
  // with it.
  double exposed_messages = 0;
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

  // `frontier` belongs to the oracle's order, with the edges the stage graph will have. Arguments
  // outlive the search.
  PartitionSearch(const StageOracle& oracle, const Frontier& frontier,
                  std::vector<StageConfig> configs, PartitionOptions options,
                  const SearchContext& context);

  // A partition with the fewest devices whose stages need at most `t` ns per sample; none if there
  // is none within the limits, or if the context expired.
  std::optional<Partition> Find(double t, const PartitionLimits& limits);

  // The partition with the least bottleneck up to a relative error of kPrecision, among those with
  // bottleneck in [least, most].
  std::optional<Partition> Minimize(double least, double most, const PartitionLimits& limits);
  static constexpr double kPrecision = 1e-3;

  // ns per sample of [begin, end) with `replicas` replicas: compute, its share of the gradient sum,
  // and no less than its messages take on the fastest link.
  double StageTps(int32_t begin, int32_t end, int32_t replicas, const StageConfig& config) const;

  // No partition over `devices` devices is faster, ns per sample.
  double LowerBound(int32_t devices) const;
  int64_t states() const { return states_; }

 private:
  struct Option {
    int32_t config;
    int32_t replicas;
    int64_t share;
    const ShareCosts* costs;
  };
  // What crosses the network for a stage with 2^index replicas.
  struct Network {
    double sum_latency = 0;       // Gradient sum: ns,
    double sum_per_byte = 0;      // and ns per byte.
    double message_per_byte = 0;  // Messages on the fastest links, ns per byte,
    double exposed_per_byte = 0;  // and the share of their time on the slowest that is in the way.
  };
  struct Point {
    int32_t devices = 0;
    int32_t stages = 0;
    int32_t end = 0;    // Of its first stage,
    int32_t rest = -1;  // which is followed by this point of Front(end).
    int32_t option = -1;
    int64_t in_flight = 0;
    double traffic = 0;  // Bytes per sample over all boundaries.
    Bytes peak = 0;
  };
  struct Front {
    int32_t fewest_devices = 0;  // Of any point.
    std::vector<Point> points;
    std::vector<int64_t> needs;  // Row per point: [class][config].
  };
  void DescribeNetwork(const Cluster& cluster);
  struct Step;  // The range [begin, end) while it grows towards the front.

  void ExtendFrom(int32_t end, double t, const PartitionLimits& limits);
  bool TryStage(const Step& step, const Option& option, int32_t option_index, double t,
                const PartitionLimits& limits);
  void DeriveNeeds(const Step& step, const int64_t* needs_behind, const StageConfig& config,
                   int64_t in_flight);
  void Insert(Front& front, const Point& point, const std::vector<int64_t>& needs);
  int Compare(const Point& a, const int64_t* a_needs, const Point& b, const int64_t* b_needs,
              size_t width) const;
  Partition Assemble(int32_t point) const;
  double Tps(const StageOracle::Extent& extent, double compute, int32_t replicas) const;

  const StageOracle* oracle_;
  const Frontier* frontier_;
  std::vector<StageConfig> configs_;
  PartitionOptions options_;
  const SearchContext* context_;
  int64_t mini_batch_;
  Bytes memory_;
  std::vector<Network> networks_;
  std::vector<Option> choices_;
  std::vector<double> least_work_;  // Prefix sums: least device-ns per sample of each operator.
  double largest_operator_ = 0;     // Least ns per sample of the slowest operator.
  std::vector<Front> fronts_;
  std::vector<int64_t> scratch_;
  int64_t states_ = 0;
};

}  // namespace stagewright
