#include "common/graph/downsets.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::RandomDag;
using testing::Rng;
using testing::Uniform;

bool IsDownset(const Dag& dag, const VertexSets& sets, int32_t set) {
  for (const auto& [u, v] : dag.Edges()) {
    if (sets.Has(set, v) && !sets.Has(set, u)) return false;
  }
  return true;
}

// Every subset of up to 20 vertices that is one, counted one by one.
int64_t CountDownsets(const Dag& dag) {
  int64_t count = 0;
  for (uint32_t mask = 0; mask < (uint32_t{1} << dag.size()); ++mask) {
    bool closed = true;
    for (const auto& [u, v] : dag.Edges()) {
      closed = closed && !(((mask >> v) & 1) != 0 && ((mask >> u) & 1) == 0);
    }
    count += closed ? 1 : 0;
  }
  return count;
}

TEST(DownsetsTest, EachOnceAndSmallerOnesFirst) {
  Rng rng(1);
  for (int i = 0; i < 60; ++i) {
    const auto n = static_cast<int32_t>(Uniform(rng, 1, 12));
    const Dag dag = RandomDag(rng, n, static_cast<double>(Uniform(rng, 0, 10)) / 10);
    const auto sets = AllDownsets(dag, 5000);
    ASSERT_TRUE(sets.has_value());
    EXPECT_EQ(sets->size(), CountDownsets(dag));
    std::set<std::vector<uint64_t>> seen;
    int32_t before = 0;
    for (int32_t s = 0; s < sets->size(); ++s) {
      EXPECT_TRUE(IsDownset(dag, *sets, s));
      EXPECT_TRUE(seen.insert({(*sets)[s].begin(), (*sets)[s].end()}).second);
      int32_t members = 0;
      for (int32_t v = 0; v < n; ++v) members += sets->Has(s, v) ? 1 : 0;
      EXPECT_GE(members, before);
      before = members;
      if (s == 0) continue;
      ASSERT_LT(sets->parent(s), s);
      EXPECT_TRUE(sets->Contains(s, sets->parent(s)));
      EXPECT_FALSE(sets->Contains(sets->parent(s), s));
      EXPECT_TRUE(sets->Has(s, sets->added(s)));
      EXPECT_FALSE(sets->Has(sets->parent(s), sets->added(s)));
    }
  }
}

TEST(DownsetsTest, MoreThanOneWordOfVertices) {
  std::vector<Dag::Edge> edges;
  for (int32_t v = 1; v < 150; ++v) edges.emplace_back(v - 1, v);
  const Dag chain = *Dag::Create(150, edges);
  const auto sets = AllDownsets(chain, 151);
  ASSERT_TRUE(sets.has_value());
  EXPECT_EQ(sets->size(), 151);
  EXPECT_TRUE(sets->Contains(150, 70));
  EXPECT_FALSE(sets->Contains(70, 71));
  EXPECT_FALSE(AllDownsets(chain, 150).has_value());
}

TEST(DownsetsTest, TheLimitHoldsWhateverTheGraph) {
  // 2^200 downsets.
  const Dag apart = *Dag::Create(200, {});
  EXPECT_FALSE(AllDownsets(apart, 40'000).has_value());
  EXPECT_FALSE(AllDownsets(apart, 0).has_value());
}

TEST(DownsetsTest, StopsWhenTold) {
  int asked = 0;
  const auto stop = [&] { return ++asked == 3; };
  EXPECT_FALSE(AllDownsets(*Dag::Create(30, {}), int64_t{1} << 40, stop).has_value());
  EXPECT_EQ(asked, 3);
}

TEST(DownsetsTest, PrefixesOfAnOrder) {
  const Dag dag = *Dag::Create(4, {{0, 1}, {2, 3}});
  const VertexSets sets = Prefixes(dag, {2, 0, 3, 1});
  ASSERT_EQ(sets.size(), 5);
  EXPECT_EQ(sets[0][0], 0u);
  EXPECT_EQ(sets[1][0], 4u);
  EXPECT_EQ(sets[2][0], 5u);
  EXPECT_EQ(sets[3][0], 13u);
  EXPECT_EQ(sets[4][0], 15u);
}

}  // namespace
}  // namespace stagewright
