#include "planner_service/planners/graphpipe/stage_timeline.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/cost/collectives.h"
#include "common/cost/gradient_buckets.h"
#include "common/cost/update.h"
#include "common/lowering/compute_order.h"

namespace stagewright {
namespace {

// Rounds of micro-batches after the pipeline is full from which its pace is taken.
constexpr int64_t kRounds = 8;

// The stages' passes of `samples` samples, one device for all replicas of a stage.
PassLanes LanesOf(const Partition& partition, const Layout& layout, int64_t samples,
                  ReceivePosting posting) {
  std::vector<PassLanes::Unit> units;
  std::vector<UnitPass> passes;
  for (const StageChoice& choice : partition.stages) {
    const auto s = static_cast<int32_t>(units.size());
    const int64_t b = choice.config.micro_batch;
    units.push_back({s, static_cast<int32_t>(samples / b), b});
    for (const MicroBatchTask& task :
         StageOrder(samples / b, b, {layout.in_flight[s], choice.config.k}, true)) {
      const auto m = static_cast<int32_t>(task.index);
      passes.push_back({s, m, task.backward ? PassKind::kBackward : PassKind::kForward});
    }
  }
  return PassLanes(std::move(units), passes, posting);
}

// What the sums and updates of a stage have left after its last backward pass, cut as
// MakeReductions does, by operators.
double TailOf(const StageOracle& oracle, const StageChoice& choice,
              const std::vector<DeviceId>& devices, double step) {
  if (devices.size() < 2) return step;
  const ShareCosts& share = oracle.Share(choice.config.micro_batch / choice.replicas);
  std::vector<Bytes> gradients;
  std::vector<double> backward;
  for (int32_t p = choice.begin; p < choice.end; ++p) {
    gradients.push_back(oracle.costs().held(oracle.order()[p].value()).planned.gradients);
    backward.push_back(share.Time(p, p + 1) - share.Forward(p, p + 1));
  }
  const AllReduceLines lines = FitAllReduceLines(*oracle.problem().cluster, devices);
  const std::vector<double> left = TimeLeftAt(backward);
  return UpdateTail(BestBuckets(gradients, left, lines, oracle.problem().bucket_bytes), left, lines,
                    step);
}

// How much of the mini-batch is simulated: once, or of a long one, twice.
struct Lengths {
  int64_t full = 0;  // Samples until the pipeline runs at its pace; the mini-batch if it is short.
  int64_t longer = 0;
};

Lengths LengthsOf(const StageOracle& oracle, const Partition& partition, const Layout& layout) {
  const int64_t mini_batch = oracle.problem().mini_batch;
  int64_t round = 1;  // Samples after which the pattern of all stages repeats.
  int64_t deepest = 0;
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    round = std::lcm(round, partition.stages[s].config.k * partition.stages[s].config.micro_batch);
    deepest = std::max(deepest, layout.in_flight[s]);
  }
  const int64_t full = (deepest + round - 1) / round * round + kRounds * round;
  if (full + kRounds * round >= mini_batch) return {mini_batch, mini_batch};
  return {full, full + kRounds * round};
}

}  // namespace

TimelineCosts StageTimelineCosts(const StageOracle& oracle, const Partition& partition,
                                 const Layout& layout) {
  const Cluster& cluster = *oracle.problem().cluster;
  TimelineCosts costs;
  for (const Link& link : cluster.links()) costs.rates.push_back(link.bytes_per_second);
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    const StageChoice& choice = partition.stages[s];
    const ShareCosts& share = oracle.Share(choice.config.micro_batch / choice.replicas);
    const double forward = share.Forward(choice.begin, choice.end);
    // What recomputes waits for the gradient here.
    const double backward =
        share.Time(choice.begin, choice.end) - forward + (choice.recompute ? forward : 0);
    costs.times.push_back({forward, backward, 0, 0});
    const StageOracle::Extent& extent = oracle.At(choice.begin, choice.end);
    const auto step = static_cast<double>(OptimizerStepTime(oracle.kind(), extent.resident, 0));
    costs.updates.push_back(TailOf(oracle, choice, layout.devices[s], step));
  }
  const auto way = [](const Layout::Load& load) {
    return TimelineCosts::Way{static_cast<double>(load.latency), 0, load.links};
  };
  for (const Layout::Edge& edge : layout.edges) {
    costs.messages.push_back({edge.from, edge.to, true, way(edge.there), way(edge.back)});
  }
  return costs;
}

double StageTimeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                     const TimelineCosts& costs, const SearchContext& context,
                     ReceivePosting posting) {
  const Lengths lengths = LengthsOf(oracle, partition, layout);
  const auto time = [&](int64_t samples) {
    Timeline::Options options{LinkModel::kShared};
    options.context = &context;
    return Timeline(LanesOf(partition, layout, samples, posting)).Run(costs, options);
  };
  const double first = time(lengths.full);
  if (lengths.full == lengths.longer || first == Timeline::kNever) return first;
  const double second = time(lengths.longer);
  if (second == Timeline::kNever) return second;
  const int64_t rest = oracle.problem().mini_batch - lengths.longer;
  return second + (second - first) * static_cast<double>(rest) /
                      static_cast<double>(lengths.longer - lengths.full);
}

double StageTimeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                     const SearchContext& context, ReceivePosting posting) {
  return StageTimeline(oracle, partition, layout, StageTimelineCosts(oracle, partition, layout),
                       context, posting);
}

int64_t TimelineTasks(const StageOracle& oracle, const Partition& partition, const Layout& layout) {
  const Lengths lengths = LengthsOf(oracle, partition, layout);
  int64_t samples = lengths.longer;
  if (lengths.full < lengths.longer) samples += lengths.full;
  int64_t tasks = 0;
  for (const StageChoice& choice : partition.stages) {
    tasks += 2 * samples / choice.config.micro_batch;
  }
  return tasks;
}

}  // namespace stagewright
