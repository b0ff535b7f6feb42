// How fast a strategy is lowered, validated and simulated, in actions per second.
//
//   simulate_bench [--actions 1000000] [--repeat 3]
//
// Pipelines of equal operators, with as many micro-batches of one sample as it takes to have that
// many actions: a chain of 8 stages, four branches of 4 stages that join, a chain of 8 stages with
// 4 replicas each, and the same chain on nodes whose devices share an uplink, so that transfers
// contend. One line per pipeline: best time of each part.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/check.h"
#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/validation/validate.h"
#include "planner_service/simulator/model_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

constexpr testing::Work kWork = {100 * kMicrosecond, 200 * kMicrosecond, 256 * kKiB, kMiB, {}};

struct Pipeline {
  std::string name;
  Graph graph;
  Cluster cluster;
  int32_t replicas = 1;
};

Graph Branches(int32_t branches, int32_t length) {
  std::vector<testing::Work> nodes;
  testing::Work join = kWork;
  for (int32_t b = 0; b < branches; ++b) {
    for (int32_t i = 0; i < length; ++i) {
      const auto index = static_cast<int32_t>(nodes.size());
      nodes.push_back(kWork);
      if (i > 0) nodes.back().after = {index - 1};
      if (i == length - 1) join.after.push_back(index);
    }
  }
  nodes.push_back(join);
  return testing::ProfiledGraph(nodes);
}

Cluster SharedUplinks() {
  HierarchicalSpec spec;
  spec.name = "shared";
  spec.nodes = 8;
  spec.devices_per_node = 4;
  spec.kind = testing::FlatCluster(1).kinds()[0];
  spec.memory = 1024 * kGiB;
  spec.inside = {"port", kMicrosecond, 1e11};
  spec.outside = {"uplink", 5 * kMicrosecond, 1e9};
  return MakeHierarchical(spec).value();
}

std::vector<Pipeline> Pipelines() {
  const Graph chain = testing::ProfiledChain(8, kWork);
  const auto flat = [](int32_t n) {
    return testing::FlatCluster(n, 1024 * kGiB, kMicrosecond, 1e11);
  };
  return {{"chain of 8", chain, flat(8), 1},
          {"4 branches of 4", Branches(4, 4), flat(17), 1},
          {"chain of 8 x 4 replicas", chain, flat(32), 4},
          {"the same, shared uplinks", chain, SharedUplinks(), 4}};
}

// One node a stage, replicas on neighbouring devices.
Strategy MakeStrategy(const Pipeline& pipeline, int64_t micro_batches) {
  std::vector<std::vector<int32_t>> nodes, devices;
  for (int32_t v = 0; v < pipeline.graph.size(); ++v) {
    nodes.push_back({v});
    devices.emplace_back();
    for (int32_t r = 0; r < pipeline.replicas; ++r) {
      devices.back().push_back(v * pipeline.replicas + r);
    }
  }
  return testing::MakeStrategy(pipeline.graph, nodes, devices, micro_batches * pipeline.replicas,
                               pipeline.replicas);
}

int64_t Actions(const Program& program) {
  int64_t actions = 0;
  for (const DeviceProgram& device : program.devices) {
    actions += static_cast<int64_t>(device.body.size());
  }
  return actions;
}

template <typename F>
double BestSeconds(int repeat, F&& work) {
  double best = 0;
  for (int i = 0; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (i == 0 || seconds.count() < best) best = seconds.count();
  }
  return best;
}

void Measure(const Pipeline& pipeline, int64_t actions, int repeat) {
  const auto costs = MakeAnalyticCostModel(pipeline.graph);
  const auto lowered = [&](int64_t micro_batches) {
    return Lower(pipeline.graph, MakeStrategy(pipeline, micro_batches), *costs, {}).value();
  };
  constexpr int64_t kFew = 64;
  const int64_t micro_batches = std::max<int64_t>(1, actions * kFew / Actions(lowered(kFew)));
  Program program;
  const double lower = BestSeconds(repeat, [&] { program = lowered(micro_batches); });
  const double validate = BestSeconds(repeat, [&] { CHECK(Validate(program, {}).ok()); });
  Simulation simulation;
  const auto simulate = [&](bool timeline) {
    const auto durations =
        MakeModelDurations(pipeline.graph, program, pipeline.cluster, *costs, Optimizer::kAdam);
    simulation = Simulate(program, *durations, {timeline}).value();
  };
  const double with_timeline = BestSeconds(repeat, [&] { simulate(true); });
  const double plain = BestSeconds(repeat, [&] { simulate(false); });
  const auto count = static_cast<double>(Actions(program));
  std::printf("%-26s %7zu %9.0f %8.3f %9.3f %9.3f %12.3f %11.2f\n", pipeline.name.c_str(),
              program.devices.size(), count, lower, validate, plain, with_timeline,
              count / plain * 1e-6);
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) {
  CLI::App app("Speed of lowering, validation and simulation");
  int64_t actions = 1'000'000;
  int repeat = 3;
  app.add_option("--actions", actions, "Actions of each program, about")
      ->check(CLI::PositiveNumber);
  app.add_option("--repeat", repeat, "Runs, of which the best counts")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  std::printf("%-26s %7s %9s %8s %9s %9s %12s %11s\n", "pipeline", "devices", "actions", "lower s",
              "valid. s", "simul. s", "+ timeline s", "M actions/s");
  for (const auto& pipeline : stagewright::Pipelines()) {
    stagewright::Measure(pipeline, actions, repeat);
  }
  return 0;
}
