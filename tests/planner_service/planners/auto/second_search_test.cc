#include "planner_service/planners/auto/second_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
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

// Forks within forks, of operators that take 20 to 400 us a sample.
Graph NestedForks(Rng& rng, int32_t operators) {
  const Dag dag = testing::RandomSeriesParallel(rng, operators).dag;
  std::vector<int32_t> place(operators);
  for (int32_t i = 0; i < operators; ++i) place[dag.order()[i]] = i;
  const Bytes largest = Uniform(rng, 0, 1) == 0 ? kMiB : 32 * kMiB;
  std::vector<testing::Work> nodes(operators);
  for (int32_t i = 0; i < operators; ++i) {
    testing::Work& node = nodes[i];
    for (int32_t before : dag.Predecessors(dag.order()[i])) node.after.push_back(place[before]);
    node.forward = Uniform(rng, 20, 400) * kMicrosecond;
    node.backward = Uniform(rng, 1, 2) * node.forward;
    node.activation_bytes = Bytes(Uniform(rng, 0, largest.count()));
    if (Uniform(rng, 0, 1) == 0) continue;
    node.parameter_bytes = Bytes(Uniform(rng, 0, (32 * kMiB).count()));
  }
  return testing::ProfiledGraph(nodes);
}

PlanResponse Answer(const Graph& graph, uint64_t seed) {
  const Cluster cluster = testing::FlatCluster(3, 16 * kGiB, 5 * kMicrosecond, 2e10);
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 8;
  request.optimizer = Optimizer::kSgd;
  request.options.seed = seed;
  SearchContext context;
  auto response = SolvePlan(request, context);
  EXPECT_TRUE(response.ok() && response->best) << response.status();
  return response.ok() ? *std::move(response) : PlanResponse();
}

// Three devices cannot share eight samples evenly, but two of them can, beside the third. The first
// search ends 7 % above the bound, and without the permission to recompute 1.5 %. Single draws may
// end like the first search.
TEST(SecondSearchTest, TwoDevicesShareSamplesBesideTheThird) {
  Rng rng(500'203);
  rng.discard(5);
  const Graph graph = NestedForks(rng, 33);
  std::vector<double> gaps;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const PlanResponse answer = Answer(graph, seed);
    ASSERT_TRUE(answer.best);
    gaps.push_back(ToSeconds(answer.best->evaluation.iteration_time) /
                   ToSeconds(answer.lower_bound));
  }
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LE(gaps[2], 1.03);
}

// Layers in a row with Adam's states, on eight devices whose memory is from 0.4 to 0.9 of an even
// share of these and of what 16 samples keep.
PlanResponse AnswerWhereMemoryBinds(uint64_t seed, const PlanOptions& options) {
  Rng rng(seed);
  std::vector<testing::Work> nodes(Uniform(rng, 14, 36));
  Bytes needed = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    testing::Work& node = nodes[i];
    if (i > 0) node.after.push_back(static_cast<int32_t>(i - 1));
    node.forward = Uniform(rng, 300, 3'000) * kMicrosecond;
    node.backward = Uniform(rng, 3, 5) * node.forward / 2;
    node.activation_bytes = Uniform(rng, 5, 60) * kMiB;
    const int64_t share = Uniform(rng, 0, 3);
    node.parameter_bytes = share * Uniform(rng, 5, 40) * kMiB;
    needed += 4 * node.parameter_bytes + 16 * node.activation_bytes;
  }
  const Graph graph = testing::ProfiledGraph(nodes);
  const Bytes memory = needed / 8 * Uniform(rng, 4, 9) / 10;
  const Cluster cluster = testing::FlatCluster(8, memory, 5 * kMicrosecond, 5e9);
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 16;
  request.optimizer = Optimizer::kAdam;
  request.options = options;
  SearchContext context;
  auto response = SolvePlan(request, context);
  EXPECT_TRUE(response.ok() && response->best) << response.status();
  return response.ok() ? *std::move(response) : PlanResponse();
}

// Most changes of such plans do not fit. With all that is permitted the searches before ended 19 %
// behind what those with whole backward passes found.
TEST(SecondSearchTest, PermissionsHardlyCostWhereMemoryBinds) {
  constexpr uint64_t kSeed = 7;
  PlanOptions whole;
  whole.split_backward = false;
  const PlanResponse free = AnswerWhereMemoryBinds(kSeed, {});
  const PlanResponse restricted = AnswerWhereMemoryBinds(kSeed, whole);
  ASSERT_TRUE(free.best && restricted.best);
  EXPECT_LE(ToSeconds(free.best->evaluation.iteration_time),
            1.05 * ToSeconds(restricted.best->evaluation.iteration_time));
}

}  // namespace
}  // namespace stagewright
