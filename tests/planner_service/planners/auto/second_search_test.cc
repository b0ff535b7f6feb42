#include "planner_service/planners/auto/second_search.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "planner_service/front_door/front_door.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

// Forks within forks, with work of any size.
Graph NestedForks(Rng& rng, int32_t operators) {
  const Dag dag = testing::RandomSeriesParallel(rng, operators).dag;
  std::vector<int32_t> place(operators);
  for (int32_t i = 0; i < operators; ++i) place[dag.order()[i]] = i;
  std::vector<testing::Work> nodes(operators);
  for (int32_t i = 0; i < operators; ++i) {
    testing::Work& node = nodes[i];
    for (int32_t before : dag.Predecessors(dag.order()[i])) node.after.push_back(place[before]);
    node.forward = Uniform(rng, 20, 400) * kMicrosecond;
    node.backward = Uniform(rng, 1, 2) * node.forward;
    node.activation_bytes = Bytes(Uniform(rng, 0, (kMiB).count()));
    node.parameter_bytes = Bytes(Uniform(rng, 0, (16 * kMiB).count()));
  }
  return testing::ProfiledGraph(nodes);
}

PlanResponse Answer(const Graph& graph, const Cluster& cluster, RecomputePolicy recompute) {
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 8;
  request.options.recompute = recompute;
  SearchContext context;
  auto response = SolvePlan(request, context);
  EXPECT_TRUE(response.ok() && response->best) << response.status();
  return response.ok() ? *std::move(response) : PlanResponse();
}

TEST(SecondSearchTest, Trial) {
  for (uint64_t seed = 1; seed < 13; ++seed) {
    Rng rng(seed);
    const Graph graph = NestedForks(rng, 24);
    const Cluster cluster = testing::FlatCluster(3, 16 * kGiB, 5 * kMicrosecond, 2e10);
    const PlanResponse free = Answer(graph, cluster, RecomputePolicy::kAllowed);
    const PlanResponse never = Answer(graph, cluster, RecomputePolicy::kNever);
    std::printf("%d %.5g %.5g bound %.5g\n", (int)seed, ToSeconds(free.best->evaluation.iteration_time) * 1e3, ToSeconds(never.best->evaluation.iteration_time) * 1e3, ToSeconds(free.lower_bound) * 1e3);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace stagewright
