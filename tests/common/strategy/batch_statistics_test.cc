#include "common/strategy/batch_statistics.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

Node NodeThat(const std::string& target, bool batch_dependent) {
  Node node;
  node.target = target;
  node.batch_dependent = batch_dependent;
  return node;
}

TEST(BatchStatistics, OnlyNormalisationMayDifferByMicroBatch) {
  const Node norm = NodeThat("aten.batch_norm.default", true);
  const Node legit = NodeThat("aten._native_batch_norm_legit.default", true);
  const Node other = NodeThat("aten.cdist.default", true);
  EXPECT_TRUE(IsBatchNormalisation(norm) && IsBatchNormalisation(legit));
  EXPECT_FALSE(IsBatchNormalisation(other));
  EXPECT_FALSE(IsBatchNormalisation(NodeThat("mine.batch_norm.default", true)));
  for (const BatchStatistics strict : {BatchStatistics::kWhole, BatchStatistics::kSynchronised}) {
    EXPECT_TRUE(NeedsWholeBatch(norm, strict));
    EXPECT_TRUE(NeedsWholeBatch(other, strict));
  }
  EXPECT_FALSE(NeedsWholeBatch(legit, BatchStatistics::kMicro));
  EXPECT_TRUE(NeedsWholeBatch(other, BatchStatistics::kMicro));
  EXPECT_FALSE(
      NeedsWholeBatch(NodeThat("aten.batch_norm.default", false), BatchStatistics::kWhole));
}

TEST(BatchStatistics, TheFirstNodeIsFound) {
  testing::GraphBuilder builder("net");
  const Argument x = builder.Feature("x", {4});
  const Argument norm = builder.Add("aten.batch_norm.default", {builder.Linear(x, 4, 4)}, {4});
  builder.Loss(builder.Linear(norm, 4, 1), {1});
  EXPECT_EQ(FirstOnWholeBatch(builder.Build(), BatchStatistics::kWhole), std::nullopt);
  const NodeId at = testing::NodeOf(norm);
  builder.data.nodes[at.index()].batch_dependent = true;
  EXPECT_EQ(FirstOnWholeBatch(builder.Build(), BatchStatistics::kWhole), at);
  EXPECT_EQ(FirstOnWholeBatch(builder.Build(), BatchStatistics::kMicro), std::nullopt);
}

TEST(BatchStatistics, HaveNames) {
  EXPECT_STREQ(BatchStatisticsName(BatchStatistics::kWhole), "whole");
  EXPECT_STREQ(BatchStatisticsName(BatchStatistics::kMicro), "micro");
  EXPECT_STREQ(BatchStatisticsName(BatchStatistics::kSynchronised), "synchronised");
}

}  // namespace
}  // namespace stagewright
