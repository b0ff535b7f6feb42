#include "planner_service/planners/pfeife/dependency_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "tests/support/random.h"

namespace stagewright::pfeife {
namespace {

using testing::Rng;
using testing::Uniform;

// Slices with random costs; each pair exchanges a message with the given probability in percent.
SliceCosts RandomCosts(Rng& random, const LoopedShape& shape, int percent) {
  SliceCosts costs;
  for (int32_t s = 0; s < shape.slices(); ++s) {
    costs.forward.push_back(static_cast<double>(Uniform(random, 0, 20)));
    costs.backward.push_back(static_cast<double>(Uniform(random, 0, 40)));
    for (int32_t to = s + 1; to < shape.slices(); ++to) {
      if (shape.device_of(s) == shape.device_of(to) || Uniform(random, 0, 99) >= percent) continue;
      costs.messages.push_back({s, to, static_cast<double>(Uniform(random, 0, 5)),
                                static_cast<double>(Uniform(random, -1, 5))});
    }
  }
  return costs;
}

// The longest path by recursion over the definition.
double LongestByDefinition(const LoopedShape& shape, const SliceCosts& costs) {
  using Key = std::tuple<int32_t, int32_t, bool>;
  std::map<Key, Key> previous;
  for (const auto& passes : DevicePasses(shape)) {
    for (size_t i = 1; i < passes.size(); ++i) {
      const auto key = [](const SlicePass& p) { return Key{p.slice, p.micro_batch, p.backward}; };
      previous[key(passes[i])] = key(passes[i - 1]);
    }
  }
  std::map<Key, double> known;
  const std::function<double(const Key&)> end = [&](const Key& key) -> double {
    if (const auto it = known.find(key); it != known.end()) return it->second;
    const auto [slice, batch, backward] = key;
    double start = 0;
    if (const auto it = previous.find(key); it != previous.end()) start = end(it->second);
    for (const SliceCosts::Message& m : costs.messages) {
      if (!backward && m.to == slice) {
        start = std::max(start, end({m.from, batch, false}) + m.there);
      }
      if (backward && m.from == slice && m.back >= 0) {
        start = std::max(start, end({m.to, batch, true}) + m.back);
      }
    }
    return known[key] = start + (backward ? costs.backward : costs.forward)[slice];
  };
  double longest = 0;
  for (int32_t s = 0; s < shape.slices(); ++s) {
    for (int32_t m = 0; m < shape.micro_batches; ++m) {
      for (bool backward : {false, true}) longest = std::max(longest, end({s, m, backward}));
    }
  }
  return longest;
}

// Pfeife's figure 2: the second forward pass of v2 can start at 31.
TEST(DependencyGraphTest, Figure2) {
  SliceCosts costs;
  costs.forward = {15, 10};
  costs.backward = {30, 20};
  costs.messages = {{0, 1, 1, 1}};
  // All forwards first, as in the figure: v1+1, v1+2 on one device, v2+1, v2+2 on the other.
  const LoopedShape gpipe{2, 1, 2, 2, {2, 2}};
  auto first = DependencyGraph::Create(gpipe);
  ASSERT_TRUE(first);
  first->LongestPath(costs);
  EXPECT_EQ(first->Start({1, 0, false}), 16);
  EXPECT_EQ(first->Start({1, 1, false}), 31);
}

TEST(DependencyGraphTest, LongestPathIsThatOfTheDefinition) {
  Rng random(3);
  for (int i = 0; i < 60; ++i) {
    const auto devices = static_cast<int32_t>(Uniform(random, 1, 4));
    const auto loops = static_cast<int32_t>(Uniform(random, 1, 3));
    const auto batches = static_cast<int32_t>(Uniform(random, 1, 6));
    const auto shapes = PossibleShapes(devices, loops, batches);
    const LoopedShape& shape = shapes[Uniform(random, 0, static_cast<int64_t>(shapes.size()) - 1)];
    SCOPED_TRACE(ToString(shape));
    auto graph = DependencyGraph::Create(shape);
    ASSERT_TRUE(graph);
    const SliceCosts costs = RandomCosts(random, shape, 60);
    EXPECT_EQ(graph->LongestPath(costs), LongestByDefinition(shape, costs));
  }
}

// The critical path is as long as the step, and bounds the step of all other costs.
TEST(DependencyGraphTest, PathsBoundOtherSlices) {
  Rng random(4);
  int bounds = 0;
  for (int i = 0; i < 40; ++i) {
    const auto shapes = PossibleShapes(3, 1 + i % 3, 6);
    const LoopedShape& shape = shapes[Uniform(random, 0, static_cast<int64_t>(shapes.size()) - 1)];
    auto graph = DependencyGraph::Create(shape);
    ASSERT_TRUE(graph);
    const SliceCosts costs = RandomCosts(random, shape, 70);
    const double longest = graph->LongestPath(costs);
    const PathCounts path = graph->CriticalPath();
    EXPECT_NEAR(PathLength(path, costs), longest, 1e-9);
    for (int j = 0; j < 10; ++j) {
      const SliceCosts other = RandomCosts(random, shape, 90);
      const double length = PathLength(path, other);
      EXPECT_LE(length, graph->LongestPath(other) + 1e-9);
      if (length >= 0) ++bounds;
    }
  }
  EXPECT_GT(bounds, 0);
}

}  // namespace
}  // namespace stagewright::pfeife
