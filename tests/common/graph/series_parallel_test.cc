#include "common/graph/series_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/stopwatch.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::RandomDag;
using testing::RandomSeriesParallel;
using testing::Rng;
using testing::Uniform;

Dag MakeDag(int32_t n, std::vector<Dag::Edge> edges) {
  auto dag = Dag::Create(n, std::move(edges));
  EXPECT_TRUE(dag.ok()) << dag.status();
  return *std::move(dag);
}

TEST(SeriesParallel, SmallShapes) {
  EXPECT_EQ(ToString(Decompose(MakeDag(1, {}))), "0");
  EXPECT_EQ(ToString(Decompose(MakeDag(2, {}))), "P(0 1)");
  EXPECT_EQ(ToString(Decompose(MakeDag(3, {{2, 1}, {1, 0}}))), "S(2 1 0)");
  EXPECT_EQ(ToString(Decompose(MakeDag(5, {{0, 1}, {0, 2}, {2, 3}, {1, 4}, {3, 4}}))),
            "S(0 P(1 S(2 3)) 4)");
  // Two sets joined completely, without a vertex between.
  EXPECT_EQ(ToString(Decompose(MakeDag(4, {{0, 2}, {0, 3}, {1, 2}, {1, 3}}))), "S(P(0 1) P(2 3))");
}

TEST(SeriesParallel, ImpliedEdgesDoNotCount) {
  const SpTree tree = Decompose(MakeDag(4, {{0, 1}, {1, 2}, {2, 3}, {0, 2}, {0, 3}, {1, 3}}));
  EXPECT_EQ(ToString(tree), "S(0 1 2 3)");
  EXPECT_EQ(tree.converted_blocks, 0);
}

TEST(SeriesParallel, PrimeBlockIsCutWhereItFallsApart) {
  // The letter N.
  const SpTree n = Decompose(MakeDag(4, {{0, 2}, {0, 3}, {1, 3}}));
  EXPECT_EQ(ToString(n), "S(P(0 1) P(2 3))");
  EXPECT_EQ(n.converted_blocks, 1);
  // Two chains 0..3 and 4..7 with one link from the first to the second: cut at the link.
  const SpTree ladder =
      Decompose(MakeDag(8, {{0, 1}, {1, 2}, {2, 3}, {4, 5}, {5, 6}, {6, 7}, {1, 6}}));
  EXPECT_EQ(ToString(ladder), "S(P(S(0 1) S(4 5)) P(S(2 3) S(6 7)))");
  EXPECT_EQ(ladder.converted_blocks, 1);
  // A converted block within a chain becomes part of the chain.
  const SpTree inner =
      Decompose(MakeDag(6, {{0, 1}, {0, 2}, {1, 3}, {1, 4}, {2, 4}, {3, 5}, {4, 5}}));
  EXPECT_EQ(ToString(inner), "S(0 P(1 2) P(3 4) 5)");
}

TEST(SeriesParallel, LinearizeKeepsBranchesTogether) {
  const SpTree tree = Decompose(MakeDag(6, {{0, 1}, {0, 2}, {1, 3}, {2, 4}, {3, 5}, {4, 5}}));
  EXPECT_THAT(Linearize(tree), ElementsAre(0, 1, 3, 2, 4, 5));
  ASSERT_EQ(ToString(tree), "S(0 P(S(1 3) S(2 4)) 5)");
  const int32_t branches = tree.vertices[tree.root()].children[1];
  EXPECT_THAT(LeavesOf(tree, branches), ElementsAre(1, 3, 2, 4));
  const std::vector<double> sums = SumsBelow(tree, {1, 2, 4, 8, 16, 32});
  EXPECT_EQ(sums[branches], 30);
  EXPECT_EQ(sums[tree.root()], 63);
}

TEST(SeriesParallel, RecoversRandomTrees) {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const auto example = RandomSeriesParallel(rng, static_cast<int32_t>(Uniform(rng, 1, 60)));
    const SpTree tree = Decompose(example.dag);
    ASSERT_EQ(ToString(tree), example.tree) << "case " << i;
    ASSERT_EQ(tree.converted_blocks, 0) << "case " << i;
  }
}

// The leaves below each vertex.
std::vector<std::vector<int32_t>> LeavesBelow(const SpTree& tree) {
  std::vector<std::vector<int32_t>> leaves(tree.vertices.size());
  for (size_t i = 0; i < tree.vertices.size(); ++i) {
    if (tree.vertices[i].kind == SpTree::Kind::kLeaf) leaves[i] = {tree.vertices[i].leaf};
    for (int32_t c : tree.vertices[i].children) {
      leaves[i].insert(leaves[i].end(), leaves[c].begin(), leaves[c].end());
    }
  }
  return leaves;
}

// Every claim of the tree, by reachability. `exact` also demands that series parts are completely
// ordered, which holds where nothing was converted.
void CheckTree(const Dag& dag, const SpTree& tree) {
  const Reachability reach(dag);
  const auto leaves = LeavesBelow(tree);
  std::vector<int32_t> seen = leaves[tree.root()];
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(static_cast<int32_t>(seen.size()), dag.size());
  for (int32_t v = 0; v < dag.size(); ++v) ASSERT_EQ(seen[v], v);
  int32_t unordered_cuts = 0;
  for (size_t i = 0; i < tree.vertices.size(); ++i) {
    const auto& vertex = tree.vertices[i];
    if (vertex.kind == SpTree::Kind::kLeaf) continue;
    ASSERT_GE(vertex.children.size(), 2u);
    bool complete = true;
    for (size_t a = 0; a < vertex.children.size(); ++a) {
      const int32_t child = vertex.children[a];
      ASSERT_LT(child, static_cast<int32_t>(i));
      ASSERT_NE(tree.vertices[child].kind, vertex.kind);
      for (size_t b = a + 1; b < vertex.children.size(); ++b) {
        for (int32_t u : leaves[child]) {
          for (int32_t v : leaves[vertex.children[b]]) {
            ASSERT_FALSE(reach.Reaches(v, u)) << v << " before " << u << " in " << ToString(tree);
            if (vertex.kind == SpTree::Kind::kParallel) {
              ASSERT_FALSE(reach.Reaches(u, v)) << u << " || " << v << " in " << ToString(tree);
            } else {
              complete = complete && reach.Reaches(u, v);
            }
          }
        }
      }
    }
    unordered_cuts += complete ? 0 : 1;
  }
  // Order was added exactly if something was converted.
  ASSERT_EQ(unordered_cuts > 0, tree.converted_blocks > 0) << ToString(tree);
}

TEST(SeriesParallel, RandomDagsKeepTheirOrder) {
  Rng rng(2);
  for (int i = 0; i < 1000; ++i) {
    const auto n = static_cast<int32_t>(Uniform(rng, 1, 40));
    const double density = static_cast<double>(Uniform(rng, 1, 60)) / 100;
    const Dag dag = RandomDag(rng, n, density);
    const SpTree tree = Decompose(dag);
    CheckTree(dag, tree);
    if (HasFatalFailure()) return;
    const std::vector<int32_t> line = Linearize(tree);
    ASSERT_EQ(static_cast<int32_t>(line.size()), n);
    std::vector<int32_t> position(n);
    for (int32_t p = 0; p < n; ++p) position[line[p]] = p;
    for (const auto& [u, v] : dag.Edges()) ASSERT_LT(position[u], position[v]);
  }
}

TEST(SeriesParallel, LongChainsAndDeepTreesAreFast) {
  constexpr int32_t kVertices = 5000;
  std::vector<Dag::Edge> chain, comb;
  for (int32_t v = 0; v + 1 < kVertices; ++v) chain.emplace_back(v, v + 1);
  // P(0 S(1 P(2 S(3 ...)))): a tree as deep as it has vertices. Odd v precedes all greater ones.
  for (int32_t v = 1; v + 1 < kVertices; v += 2) {
    comb.emplace_back(v, v + 1);
    if (v + 2 < kVertices) comb.emplace_back(v, v + 2);
  }
  const Dag chain_dag = MakeDag(kVertices, chain);
  const Dag comb_dag = MakeDag(kVertices, comb);
  const testing::Stopwatch watch;
  const SpTree chain_tree = Decompose(chain_dag);
  const SpTree comb_tree = Decompose(comb_dag);
  const auto elapsed = watch.Elapsed();
  EXPECT_EQ(chain_tree.vertices.size(), kVertices + 1u);
  EXPECT_EQ(chain_tree.converted_blocks, 0);
  EXPECT_EQ(comb_tree.converted_blocks, 0);
  EXPECT_EQ(Linearize(comb_tree).size(), static_cast<size_t>(kVertices));
  EXPECT_EQ(ToString(comb_tree).substr(0, 12), "P(0 S(1 P(2 ");
  // Generous: it is a guard against cubic time, on any machine and build.
  EXPECT_LT(elapsed, std::chrono::seconds(20));
}

}  // namespace
}  // namespace stagewright
