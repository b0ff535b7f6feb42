#include "common/memory/parameter_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;

// Parameters of these numbers of elements.
Graph GraphOf(const std::vector<int64_t>& sizes) {
  testing::GraphBuilder builder("shares");
  const Argument x = builder.Feature("x", {1});
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Argument weight = builder.Weight("w" + std::to_string(i), {sizes[i], 1});
    builder.Add("aten.linear.default", {x, weight}, {sizes[i]});
  }
  return builder.Build();
}

Reduction Over(const Graph& graph, int32_t devices) {
  Reduction reduction;
  reduction.sharded = true;
  reduction.stages = {StageId(0)};
  for (size_t p = 0; p < graph.parameters().size(); ++p)
    reduction.parameters.push_back(ParameterId(static_cast<int64_t>(p)));
  for (int32_t d = 0; d < devices; ++d) reduction.devices.push_back(DeviceId(2 * d + 1));
  return reduction;
}

TEST(ParameterShares, TileEveryParameter) {
  const std::vector<int64_t> sizes = {1, 2, 3, 7, 64, 1000};
  const Graph graph = GraphOf(sizes);
  for (int32_t devices = 2; devices <= 9; ++devices) {
    const Reduction reduction = Over(graph, devices);
    std::vector<int64_t> ends(sizes.size(), 0);
    for (DeviceId device : reduction.devices) {
      const auto shares = SharesOf(graph, reduction, device);
      ASSERT_EQ(shares.size(), sizes.size());
      for (size_t p = 0; p < sizes.size(); ++p) {
        EXPECT_EQ(shares[p].id, reduction.parameters[p]);
        EXPECT_EQ(shares[p].begin, ends[p]);
        EXPECT_GE(shares[p].size(), 0);
        EXPECT_LE(shares[p].size(), ShareSize(sizes[p], devices));
        ends[p] = shares[p].end;
      }
    }
    EXPECT_EQ(ends, sizes) << devices << " devices";
  }
}

TEST(ParameterShares, OnADeviceAreThoseOfItsShardedReductionsById) {
  const Graph graph = GraphOf({4, 5, 6});
  Program program;
  program.reductions = {Over(graph, 2), Over(graph, 2), Over(graph, 2)};
  program.reductions[0].parameters = {ParameterId(2)};
  program.reductions[1].parameters = {ParameterId(0)};
  program.reductions[2].parameters = {ParameterId(1)};
  program.reductions[2].sharded = false;
  EXPECT_THAT(
      SharesOn(graph, program, DeviceId(3)),
      ElementsAre(ParameterRange{ParameterId(0), 2, 4}, ParameterRange{ParameterId(2), 3, 6}));
  EXPECT_TRUE(SharesOn(graph, program, DeviceId(0)).empty());
}

}  // namespace
}  // namespace stagewright
