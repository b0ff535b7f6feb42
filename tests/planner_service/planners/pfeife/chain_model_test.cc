#include "planner_service/planners/pfeife/chain_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tests/planner_service/planners/pfeife/pfeife_cases.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright::pfeife {
namespace {

using testing::FlatCluster;
using testing::Rng;

std::vector<int32_t> RandomCuts(Rng& random, int32_t size, int32_t slices) {
  std::vector<int32_t> inner(size - 1);
  std::iota(inner.begin(), inner.end(), 1);
  std::shuffle(inner.begin(), inner.end(), random);
  inner.resize(slices - 1);
  inner.push_back(0);
  inner.push_back(size);
  std::sort(inner.begin(), inner.end());
  return inner;
}

TEST(ChainModelTest, SlicesExchangeWhatTheGraphSays) {
  Rng random(5);
  for (int i = 0; i < 30; ++i) {
    const Case c(testing::RandomProfile(random, 20), FlatCluster(4, kGiB, 1000, 1e9), 8);
    const std::vector<int32_t>& order = c.operators.dag().order();
    ChainModel model(c.table, order, 2);
    const auto cuts = RandomCuts(random, 20, 8);
    SliceCosts slices;
    model.Slices(cuts, Devices(4), slices);
    // By hand: a value crosses once to each slice that reads it.
    std::vector<int32_t> slice(20);
    for (int32_t s = 0; s < 8; ++s) {
      for (int32_t p = cuts[s]; p < cuts[s + 1]; ++p) slice[order[p]] = s;
    }
    std::map<std::pair<int32_t, int32_t>, Bytes> bytes;
    std::vector<double> forward(8, 0), backward(8, 0);
    for (int32_t v = 0; v < 20; ++v) {
      const ProfiledCost& cost = *c.graph.node(NodeId(v)).cost;
      forward[slice[v]] += 2.0 * static_cast<double>(cost.forward);
      backward[slice[v]] += 2.0 * static_cast<double>(cost.backward);
      std::vector<int32_t> readers;
      for (int32_t w : c.graph.dag().Successors(v)) readers.push_back(slice[w]);
      std::sort(readers.begin(), readers.end());
      readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
      for (int32_t to : readers) {
        if (to != slice[v]) bytes[{slice[v], to}] += 2 * cost.activation_bytes;
      }
    }
    EXPECT_EQ(slices.forward, forward);
    EXPECT_EQ(slices.backward, backward);
    ASSERT_EQ(slices.messages.size(), bytes.size());
    size_t at = 0;
    for (const auto& [pair, size] : bytes) {
      const SliceCosts::Message& message = slices.messages[at++];
      EXPECT_EQ(std::make_pair(message.from, message.to), pair);
      const bool sent = pair.first % 4 != pair.second % 4;
      EXPECT_NEAR(message.there, sent ? 1000 + static_cast<double>(size) : 0, 1);
      EXPECT_NEAR(message.back, sent ? 1000 + static_cast<double>(size) : 0, 1);
      EXPECT_EQ(message.back_bytes, size);
    }
  }
}

TEST(ChainModelTest, RulesOfThePublishedPlanner) {
  // Node 0 is read twice in the second slice; backward times are twice and four times the forward.
  const Case c(testing::ProfiledGraph(
                   {{100, 200, 1000, 0, {}}, {100, 400, 0, 0, {0}}, {100, 300, 0, 0, {0}}}),
               FlatCluster(2, kGiB, 0, 1e9), 1);
  ChainModel ours(c.table, {0, 1, 2}, 1);
  ChainModel theirs(c.table, {0, 1, 2}, 1, {.one_ratio = true, .per_reader = true});
  SliceCosts a, b;
  ours.Slices({0, 1, 3}, {0, 1}, a);
  theirs.Slices({0, 1, 3}, {0, 1}, b);
  EXPECT_EQ(a.messages[0].there, 1000);
  EXPECT_EQ(b.messages[0].there, 2000);
  EXPECT_EQ(a.backward, (std::vector<double>{200, 700}));
  EXPECT_EQ(b.backward, (std::vector<double>{300, 600}));
}

TEST(ChainModelTest, EvenCuts) {
  const Case c(testing::ProfiledChain(10, {10, 20, 0, 0, {}}), FlatCluster(2), 1);
  const ChainModel model(c.table, c.operators.dag().order(), 1);
  EXPECT_EQ(model.EvenTime(5), (std::vector<int32_t>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(model.EvenTime(10).size(), 11u);
  EXPECT_EQ(model.EvenMemory(3).back(), 10);
}

}  // namespace
}  // namespace stagewright::pfeife
