#include "planner_service/planners/graphpipe/pace.h"

#include <algorithm>
#include <cmath>

namespace stagewright {
namespace {

// A round trip may exceed what is in flight by this share of a micro-batch before another one is
// worth its memory.
constexpr double kTolerance = 0.05;

// Bytes per sample that one edge puts on each link, and the time before the first byte moves.
struct EdgeLoad {
  std::vector<std::pair<int32_t, double>> links;
  Nanos latency = 0;
};

// Replicas exchange the intersections of their shares of each micro-batch.
EdgeLoad LoadOf(const Cluster& cluster, const Stage& from, const Stage& to, double bytes) {
  EdgeLoad load;
  const auto senders = static_cast<double>(from.devices.size());
  const auto receivers = static_cast<double>(to.devices.size());
  for (size_t s = 0; s < from.devices.size(); ++s) {
    for (size_t r = 0; r < to.devices.size(); ++r) {
      const double begin = std::max(s / senders, r / receivers);
      const double end = std::min((s + 1) / senders, (r + 1) / receivers);
      if (end <= begin || from.devices[s] == to.devices[r]) continue;
      const Route& route = cluster.route(from.devices[s], to.devices[r]);
      load.latency = std::max(load.latency, route.latency);
      for (int32_t link : route.links) load.links.emplace_back(link, bytes * (end - begin));
    }
  }
  return load;
}

struct Messages {
  std::vector<double> time;  // Per edge, ns for one micro-batch of the sender.
  double busiest = 0;        // ns per sample of the busiest link.
};

Messages TimeMessages(const StageOracle& oracle, const Partition& partition,
                      const Strategy& strategy) {
  const Cluster& cluster = *oracle.problem().cluster;
  std::vector<EdgeLoad> loads;
  std::vector<double> all(cluster.links().size(), 0);
  for (const StageEdge& edge : strategy.edges) {
    const StageChoice& from = partition.stages[edge.from.index()];
    const StageChoice& to = partition.stages[edge.to.index()];
    const double bytes = std::min(oracle.At(from.begin, from.end).out_per_sample,
                                  oracle.At(to.begin, to.end).in_per_sample);
    loads.push_back(LoadOf(cluster, strategy.stages[edge.from.index()],
                           strategy.stages[edge.to.index()], bytes));
    for (const auto& [link, amount] : loads.back().links) all[link] += amount;
  }
  Messages messages;
  messages.time.assign(strategy.edges.size(), 0);
  for (size_t link = 0; link < all.size(); ++link) {
    messages.busiest =
        std::max(messages.busiest, all[link] * 1e9 / cluster.links()[link].bytes_per_second);
  }
  std::vector<double> meeting(all.size(), 0);
  for (size_t stage = 0; stage < strategy.stages.size(); ++stage) {
    std::fill(meeting.begin(), meeting.end(), 0);
    const auto each_edge_into = [&](auto&& visit) {
      for (size_t e = 0; e < strategy.edges.size(); ++e) {
        if (strategy.edges[e].to.index() == stage) visit(e);
      }
    };
    each_edge_into([&](size_t e) {
      for (const auto& [link, amount] : loads[e].links) meeting[link] += amount;
    });
    each_edge_into([&](size_t e) {
      double slowest = 0;
      for (const auto& [link, amount] : loads[e].links) {
        slowest = std::max(slowest, meeting[link] / cluster.links()[link].bytes_per_second);
      }
      const auto b =
          static_cast<double>(partition.stages[strategy.edges[e].from.index()].config.micro_batch);
      messages.time[e] = static_cast<double>(loads[e].latency) + slowest * 1e9 * b;
    });
  }
  return messages;
}

// Most samples in flight that fit into `memory`, in whole micro-batches.
int64_t FittingInFlight(const StageOracle& oracle, const StageChoice& choice, Bytes memory) {
  const int64_t micro_batches = oracle.problem().mini_batch / choice.config.micro_batch;
  const int64_t share = choice.config.micro_batch / choice.replicas;
  int64_t fits = 0;
  int64_t too_many = micro_batches + 1;
  while (fits + 1 < too_many) {
    const int64_t middle = (fits + too_many) / 2;
    const Bytes need = oracle.Memory(choice.begin, choice.end, {share, middle, micro_batches});
    (need <= memory ? fits : too_many) = middle;
  }
  return fits * choice.config.micro_batch;
}

}  // namespace

Pace EstimatePace(const StageOracle& oracle, const Partition& partition, const Strategy& strategy) {
  const Messages messages = TimeMessages(oracle, partition, strategy);
  const size_t n = partition.stages.size();
  // The longest message into and out of each stage.
  std::vector<double> into(n, 0);
  std::vector<double> out_of(n, 0);
  for (size_t e = 0; e < strategy.edges.size(); ++e) {
    double& to = into[strategy.edges[e].to.index()];
    double& from = out_of[strategy.edges[e].from.index()];
    to = std::max(to, messages.time[e]);
    from = std::max(from, messages.time[e]);
  }
  Pace pace;
  pace.bound = std::max(partition.bottleneck, messages.busiest);
  pace.round_trip.assign(n, 0);
  double fill = 0;
  double waiting = 0;  // Largest time per sample of a stage that waits for messages.
  size_t e = strategy.edges.size();
  for (size_t s = n; s-- > 0;) {
    const StageChoice& choice = partition.stages[s];
    const auto b = static_cast<double>(choice.config.micro_batch);
    double beyond = 0;
    for (; e > 0 && strategy.edges[e - 1].from.index() == s; --e) {
      beyond = std::max(
          beyond, 2 * messages.time[e - 1] + pace.round_trip[strategy.edges[e - 1].to.index()]);
    }
    const ShareCosts& share = oracle.Share(choice.config.micro_batch / choice.replicas);
    const double forward = share.Forward(choice.begin, choice.end);
    const double own = share.Time(choice.begin, choice.end);
    // A receive is posted two compute actions ahead (lower.h): while a backward pass runs, the
    // inputs of the next forward pass arrive, and the other way round.
    const double late =
        std::max(0.0, into[s] - (own - forward)) + std::max(0.0, out_of[s] - forward);
    waiting = std::max(waiting, (own + late) / b);
    pace.round_trip[s] = beyond + own;
    // With everything in flight nothing has to come back in time.
    const int64_t in_flight = strategy.stages[s].schedule.in_flight;
    if (in_flight < strategy.mini_batch) {
      pace.period = std::max(pace.period, pace.round_trip[s] / static_cast<double>(in_flight));
    }
    fill = std::max(fill, pace.round_trip[s] - pace.bound * b);
  }
  pace.period = std::max({pace.period, pace.bound, waiting});
  pace.iteration = pace.period * static_cast<double>(strategy.mini_batch) + std::max(fill, 0.0);
  return pace;
}

bool CoverMessages(const StageOracle& oracle, const Partition& partition, const Pace& pace,
                   Bytes memory, Strategy& strategy) {
  std::vector<Stage>& stages = strategy.stages;
  for (double share : {1.0, 0.5, 0.25}) {
    std::vector<int64_t> in_flight(stages.size());
    bool changed = false;
    bool fits = true;
    size_t e = strategy.edges.size();
    for (size_t s = stages.size(); s-- > 0 && fits;) {
      const StageSchedule& schedule = stages[s].schedule;
      const int64_t b = stages[s].micro_batch;
      int64_t least = schedule.in_flight;
      for (; e > 0 && strategy.edges[e - 1].from.index() == s; --e) {
        const size_t next = strategy.edges[e - 1].to.index();
        least = std::max(least, ComputeInFlight(schedule.k, b, stages[next].schedule.k,
                                                stages[next].micro_batch, in_flight[next]));
      }
      least = std::min((least + b - 1) / b * b, strategy.mini_batch);
      const double wanted = pace.round_trip[s] / (pace.bound * static_cast<double>(b));
      const auto micro_batches = static_cast<int64_t>(std::ceil(wanted - kTolerance));
      const int64_t extra =
          static_cast<int64_t>(share * static_cast<double>(micro_batches - least / b)) * b;
      const int64_t most = FittingInFlight(oracle, partition.stages[s], memory);
      fits = least <= most || least == schedule.in_flight;
      in_flight[s] = std::min(
          {least + std::max<int64_t>(extra, 0), std::max(most, least), strategy.mini_batch});
      changed = changed || in_flight[s] != schedule.in_flight;
    }
    if (!fits) continue;
    for (size_t s = 0; s < stages.size(); ++s) stages[s].schedule.in_flight = in_flight[s];
    return changed;
  }
  return false;
}

}  // namespace stagewright
