#include "planner_service/search/canonical_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledGraph;
using testing::Rng;
using testing::Uniform;
using testing::Work;

struct Listed {
  explicit Listed(const std::vector<Work>& works) : graph(ProfiledGraph(works)) {
    const OperatorGraph own = OneOperatorPerNode(graph).value();
    const Cluster cluster = FlatCluster(2);
    const auto costs = MakeAnalyticCostModel(graph);
    operators = CanonicalOperators({&graph, &own, &cluster, costs.get(), 4});
  }

  // Each operator with its work and whom it reads, in order.
  std::string Text() const {
    std::string text;
    for (int32_t v = 0; v < operators.size(); ++v) {
      const NodeId node = operators.op(OperatorId(v)).nodes.front();
      absl::StrAppend(&text, v, " ", graph.node(node).cost->forward.count());
      for (int32_t u : operators.dag().Predecessors(v)) absl::StrAppend(&text, " <", u);
      absl::StrAppend(&text, "\n");
    }
    return text;
  }

  // Forward times in order, microseconds.
  std::vector<int64_t> Times() const {
    std::vector<int64_t> times;
    for (const Operator& op : operators.operators()) {
      times.push_back(graph.node(op.nodes.front()).cost->forward / kMicrosecond);
    }
    return times;
  }

  Graph graph;
  OperatorGraph operators;
};

Work Takes(int64_t microseconds, std::vector<int32_t> after) {
  return {microseconds * kMicrosecond, 2 * microseconds * kMicrosecond, kKiB, kKiB,
          std::move(after)};
}

TEST(CanonicalOperators, BranchesStayTogetherTheLongestFirst) {
  // A fork, branches of 5 + 6 and 2 + 3 whose operators alternate, and a join.
  const Listed listed(
      {Takes(1, {}), Takes(5, {0}), Takes(2, {0}), Takes(6, {1}), Takes(3, {2}), Takes(4, {3, 4})});
  EXPECT_THAT(listed.Times(), ::testing::ElementsAre(1, 5, 6, 2, 3, 4));
}

TEST(CanonicalOperators, EqualBranchesKeepTheirOrder) {
  const Listed listed({Takes(1, {}), Takes(2, {0}), Takes(2, {0}), Takes(2, {0})});
  for (int32_t v = 0; v < 4; ++v) {
    EXPECT_EQ(listed.operators.op(OperatorId(v)).nodes.front(), NodeId(v));
  }
}

TEST(CanonicalOperators, TheOrderOfNodesDoesNotMatter) {
  Rng random(5);
  for (int32_t i = 0; i < 300; ++i) {
    const auto n = static_cast<int32_t>(Uniform(random, 2, 20));
    const Dag dag = testing::RandomDag(random, n, 0.2);
    std::vector<Work> works;
    for (int32_t v = 0; v < n; ++v) {
      const auto before = dag.Predecessors(v);
      works.push_back(Takes(Uniform(random, 1, 4), {before.begin(), before.end()}));
    }
    std::vector<int32_t> place(n);
    std::iota(place.begin(), place.end(), 0);
    for (int32_t v = n - 1; v > 0; --v) std::swap(place[v], place[Uniform(random, 0, v)]);
    std::vector<Work> shuffled(n);
    for (int32_t v = 0; v < n; ++v) {
      Work work = works[v];
      for (int32_t& before : work.after) before = place[before];
      std::sort(work.after.begin(), work.after.end());
      shuffled[place[v]] = std::move(work);
    }
    ASSERT_EQ(Listed(works).Text(), Listed(shuffled).Text()) << "graph " << i;
  }
}

}  // namespace
}  // namespace stagewright
