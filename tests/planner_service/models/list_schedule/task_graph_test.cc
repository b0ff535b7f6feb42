#include "planner_service/models/list_schedule/task_graph.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/topology/uniform.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;

// By sender, and of one sender by reader: what ranges of units and the order of schedules rest on.
void ExpectInOrder(const TaskGraph& graph) {
  for (size_t l = 1; l < graph.links.size(); ++l) {
    const TaskGraph::Link& before = graph.links[l - 1];
    const TaskGraph::Link& link = graph.links[l];
    EXPECT_LT(std::tie(before.from, before.to), std::tie(link.from, link.to));
  }
}

// Every link is in the ranges of its two ends, and in no others.
void ExpectRanges(const TaskGraph& graph) {
  size_t out = 0, in = 0;
  for (int32_t u = 0; u < static_cast<int32_t>(graph.units.size()); ++u) {
    for (int32_t l = graph.units[u].out_begin; l < graph.out_end(u); ++l, ++out)
      EXPECT_EQ(graph.links[l].from, u);
    for (int32_t i = graph.units[u].in_begin; i < graph.in_end(u); ++i, ++in)
      EXPECT_EQ(graph.links[graph.links_in[i]].to, u);
  }
  EXPECT_EQ(out, graph.links.size());
  EXPECT_EQ(in, graph.links.size());
}

// Replicas of two stages are linked where their shares of a micro-batch meet, and nowhere else.
size_t ExpectWhereSharesMeet(const OperatorCosts& costs, const Draft& draft,
                             const TaskGraph& graph) {
  std::vector<int32_t> stage(costs.size(), 0);
  for (size_t s = 0; s < draft.stages.size(); ++s) {
    for (int32_t op : draft.stages[s].operators) stage[op] = static_cast<int32_t>(s);
  }
  std::set<std::pair<int32_t, int32_t>> expected;
  const auto share = [&](const TaskGraph::Unit& unit) {
    return ReplicaShare({0, draft.micro_batch}, unit.replica,
                        static_cast<int32_t>(draft.stages[unit.stage].devices.size()));
  };
  for (const CostTable::Exchange& edge : costs.Exchanges(stage)) {
    for (size_t a = 0; a < graph.units.size(); ++a) {
      for (size_t b = 0; b < graph.units.size(); ++b) {
        if (graph.units[a].stage != edge.from || graph.units[b].stage != edge.to) continue;
        if (Intersect(share(graph.units[a]), share(graph.units[b])).empty()) continue;
        expected.emplace(static_cast<int32_t>(a), static_cast<int32_t>(b));
      }
    }
  }
  std::set<std::pair<int32_t, int32_t>> found;
  for (const TaskGraph::Link& link : graph.links) found.emplace(link.from, link.to);
  EXPECT_EQ(found, expected);
  return expected.size();
}

TEST(TaskGraphTest, LinksAreThereWhereSharesMeetInTheOrderOfTheirEnds) {
  Rng random(21);
  size_t links = 0;
  for (int i = 0; i < 1000; ++i) {
    SCOPED_TRACE(i);
    const auto devices = static_cast<int32_t>(testing::Uniform(random, 1, 8));
    const SearchCase c(
        testing::RandomProfile(random, static_cast<int32_t>(testing::Uniform(random, 2, 16))),
        *UniformPreset("uniform:" + std::to_string(devices)), 24);
    const OperatorCosts costs(c.problem);
    std::optional<Draft> draft = ToDraft(
        c.problem,
        testing::RandomStrategy(random, c.graph, c.operators, c.cluster, c.problem.mini_batch));
    if (!draft.has_value()) continue;
    draft->kind = StrategyKind::kGraph;  // A sequence has empty messages besides.
    ASSERT_TRUE(SortStages(c.operators.dag(), *draft));
    const TaskGraph graph = MakeTaskGraph(costs, *draft, 1);
    ExpectInOrder(graph);
    ExpectRanges(graph);
    links += ExpectWhereSharesMeet(costs, *draft, graph);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(links, 1000u);
}

}  // namespace
}  // namespace stagewright
