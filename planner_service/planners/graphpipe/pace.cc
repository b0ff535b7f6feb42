#include "planner_service/planners/graphpipe/pace.h"

#include <algorithm>
#include <cmath>

#include "common/strategy/in_flight.h"
#include "planner_service/models/fitting_in_flight.h"

namespace stagewright {
namespace {

// A round trip may exceed what is in flight by this share of a micro-batch before another one is
// worth its memory.
constexpr double kTolerance = 0.05;

// Per edge, ns for one micro-batch of the sender.
std::vector<double> TimeMessages(const Cluster& cluster, const Partition& partition,
                                 const Layout& layout) {
  std::vector<double> time(layout.edges.size(), 0);
  std::vector<double> meeting(cluster.links().size(), 0);
  std::vector<std::vector<size_t>> into(partition.stages.size());
  for (size_t e = 0; e < layout.edges.size(); ++e) into[layout.edges[e].to].push_back(e);
  for (const std::vector<size_t>& edges : into) {
    for (size_t e : edges) {
      for (const auto& [link, amount] : layout.edges[e].there.links) meeting[link] += amount;
    }
    for (size_t e : edges) {
      double slowest = 0;
      for (const auto& [link, amount] : layout.edges[e].there.links) {
        slowest = std::max(slowest, meeting[link] / cluster.links()[link].bytes_per_second);
      }
      const auto b = static_cast<double>(partition.stages[layout.edges[e].from].config.micro_batch);
      time[e] = static_cast<double>(layout.edges[e].there.latency) + slowest * 1e9 * b;
    }
    for (size_t e : edges) {
      for (const auto& [link, amount] : layout.edges[e].there.links) meeting[link] = 0;
    }
  }
  return time;
}

// ns of one micro-batch's passes.
double PassTime(const StageOracle& oracle, const StageChoice& choice) {
  const ShareCosts& share = oracle.Share(choice.config.micro_batch / choice.replicas);
  const double time = share.Time(choice.begin, choice.end);
  return time + (choice.recompute ? share.Forward(choice.begin, choice.end) : 0);
}

// Most samples in flight that fit into `memory`, in whole micro-batches.
int64_t FittingSamples(const StageOracle& oracle, const StageChoice& choice, Bytes memory) {
  const StageOracle::Flow flow{choice.config.micro_batch / choice.replicas, 1,
                               oracle.problem().mini_batch / choice.config.micro_batch,
                               choice.recompute};
  return FittingInFlight(oracle, choice.begin, choice.end, flow, memory) *
         choice.config.micro_batch;
}

}  // namespace

Pace EstimatePace(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                  ReceivePosting posting) {
  const Cluster& cluster = *oracle.problem().cluster;
  const std::vector<double> time = TimeMessages(cluster, partition, layout);
  const size_t n = partition.stages.size();
  // The longest message into and out of each stage.
  std::vector<double> into(n, 0);
  std::vector<double> out_of(n, 0);
  for (size_t e = 0; e < layout.edges.size(); ++e) {
    double& to = into[layout.edges[e].to];
    double& from = out_of[layout.edges[e].from];
    to = std::max(to, time[e]);
    from = std::max(from, time[e]);
  }
  const int64_t mini_batch = oracle.problem().mini_batch;
  Pace pace;
  double slowest = 0;  // Compute alone.
  pace.round_trip.assign(n, 0);
  std::vector<double> silent(n, 0);  // Round trips without messages.
  double fill = 0;
  double silent_fill = 0;
  double waiting = 0;  // Largest time per sample of a stage that waits for messages.
  pace.bound = layout.Busiest(cluster);
  for (const StageChoice& choice : partition.stages) {
    slowest = std::max(slowest,
                       PassTime(oracle, choice) / static_cast<double>(choice.config.micro_batch));
  }
  pace.bound = std::max(pace.bound, slowest);
  size_t e = layout.edges.size();
  for (size_t s = n; s-- > 0;) {
    const StageChoice& choice = partition.stages[s];
    const auto b = static_cast<double>(choice.config.micro_batch);
    double beyond = 0;
    double silent_beyond = 0;
    for (; e > 0 && layout.edges[e - 1].from == static_cast<int32_t>(s); --e) {
      const int32_t next = layout.edges[e - 1].to;
      beyond = std::max(beyond, 2 * time[e - 1] + pace.round_trip[next]);
      silent_beyond = std::max(silent_beyond, silent[next]);
    }
    const ShareCosts& share = oracle.Share(choice.config.micro_batch / choice.replicas);
    const double forward = share.Forward(choice.begin, choice.end);
    const double own = PassTime(oracle, choice);
    // Where receives are posted ahead, the inputs of the next forward pass arrive while a backward
    // pass runs, and the other way round. The pass before of the same direction may run meanwhile,
    // too; that is not counted, as links also carry messages that this formula does not know.
    const bool ahead = posting.ahead > 1;
    const double late = std::max(0.0, into[s] - (ahead ? own - forward : 0)) +
                        std::max(0.0, out_of[s] - (ahead ? forward : 0));
    waiting = std::max(waiting, (own + late) / b);
    pace.round_trip[s] = beyond + own;
    silent[s] = silent_beyond + own;
    // With everything in flight nothing has to come back in time.
    const int64_t in_flight = layout.in_flight[s];
    if (in_flight < mini_batch) {
      pace.period = std::max(pace.period, pace.round_trip[s] / static_cast<double>(in_flight));
    }
    fill = std::max(fill, pace.round_trip[s] - pace.bound * b);
    silent_fill = std::max(silent_fill, silent[s] - pace.bound * b);
  }
  pace.period = std::max({pace.period, pace.bound, waiting});
  pace.iteration = pace.period * static_cast<double>(mini_batch) + fill;
  pace.hope = pace.bound * static_cast<double>(mini_batch) + silent_fill;
  return pace;
}

double LeastHope(const StageOracle& oracle, const Partition& partition,
                 const std::vector<CostTable::Exchange>& edges) {
  const std::vector<StageChoice>& stages = partition.stages;
  std::vector<double> path(stages.size(), 0);  // From the stage to the end and back.
  double slowest = 0;
  size_t e = edges.size();
  for (size_t s = stages.size(); s-- > 0;) {
    for (; e > 0 && edges[e - 1].from == static_cast<int32_t>(s); --e) {
      path[s] = std::max(path[s], path[edges[e - 1].to]);
    }
    const double own = PassTime(oracle, stages[s]);
    path[s] += own;
    slowest = std::max(slowest, own / static_cast<double>(stages[s].config.micro_batch));
  }
  double fill = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto b = static_cast<double>(stages[s].config.micro_batch);
    fill = std::max(fill, path[s] - slowest * b);
  }
  return slowest * static_cast<double>(oracle.problem().mini_batch) + fill;
}

bool CoverMessages(const StageOracle& oracle, const Partition& partition, const Pace& pace,
                   Bytes memory, Layout& layout) {
  const int64_t mini_batch = oracle.problem().mini_batch;
  for (double share : {1.0, 0.5, 0.25}) {
    std::vector<int64_t> in_flight(layout.in_flight.size());
    bool changed = false;
    bool fits = true;
    size_t e = layout.edges.size();
    for (size_t s = in_flight.size(); s-- > 0 && fits;) {
      const StageConfig& config = partition.stages[s].config;
      const int64_t b = config.micro_batch;
      const int64_t before = layout.in_flight[s];
      int64_t least = before;
      for (; e > 0 && layout.edges[e - 1].from == static_cast<int32_t>(s); --e) {
        const int32_t next = layout.edges[e - 1].to;
        const StageConfig& reader = partition.stages[next].config;
        least = std::max(
            least, ComputeInFlight(config.k, b, reader.k, reader.micro_batch, in_flight[next]));
      }
      least = std::min((least + b - 1) / b * b, mini_batch);
      const double wanted = pace.round_trip[s] / (pace.bound * static_cast<double>(b));
      const auto micro_batches = static_cast<int64_t>(std::ceil(wanted - kTolerance));
      const int64_t extra =
          static_cast<int64_t>(share * static_cast<double>(micro_batches - least / b)) * b;
      const int64_t most = FittingSamples(oracle, partition.stages[s], memory);
      fits = least <= most || least == before;
      in_flight[s] =
          std::min({least + std::max<int64_t>(extra, 0), std::max(most, least), mini_batch});
      changed = changed || in_flight[s] != before;
    }
    if (!fits) continue;
    layout.in_flight = std::move(in_flight);
    return changed;
  }
  return false;
}

}  // namespace stagewright
