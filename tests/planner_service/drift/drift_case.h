// A program of two stages with its predicted timeline, and what slower steps of it would look like.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/cost/analytic.h"
#include "common/lowering/lower.h"
#include "planner_service/drift/action_times.h"
#include "planner_service/simulator/model_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/strategies.h"

namespace stagewright::testing {

// Four linear layers, their loss in the second of two stages; the second stage has two replicas.
struct DriftCase {
  DriftCase() : graph(Layers()), cluster(FlatCluster(3, kGiB, 10 * kMicrosecond, 1e9)) {
    costs = MakeAnalyticCostModel(graph);
    const Strategy strategy = MakeStrategy(graph, {{0, 1}, {2, 3, 4}}, {{0}, {1, 2}}, 16, 4);
    program = Lower(graph, strategy, *costs, {}).value();
    durations = MakeModelDurations(graph, program, cluster, *costs, Optimizer::kAdam);
    predicted = Simulate(program, *durations, {.timeline = true}).value().timeline;
  }

  // Steps 0 to `steps` - 1 with every duration multiplied as `slower` says of its event, starts as
  // they were: what is between two ends of a transfer stays between them.
  std::vector<TraceEvent> Steps(int32_t steps,
                                const std::function<double(const TraceEvent&)>& slower) const {
    std::vector<TraceEvent> trace;
    for (int32_t step = 0; step < steps; ++step) {
      for (TraceEvent event : predicted) {
        event.step = step;
        const auto time = static_cast<double>(event.end - event.start);
        event.end = event.start + Nanos(time * slower(event));
        trace.push_back(event);
      }
    }
    return trace;
  }

  static bool OneClock(DeviceId /*a*/, DeviceId /*b*/) { return true; }

  static Graph Layers() {
    GraphBuilder builder("layers");
    Argument x = builder.Feature("x", {256});
    for (int i = 0; i < 4; ++i) x = builder.Linear(x, 256, 256);
    builder.Loss(x, {256});
    return builder.Build();
  }

  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  Program program;
  std::unique_ptr<Durations> durations;
  std::vector<TraceEvent> predicted;
};

}  // namespace stagewright::testing
