#include "planner_service/evaluator/over_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::MakeStrategy;
using ::testing::Not;
using testing::ProfiledGraph;

std::string Message(const testing::Work& work, Bytes memory, int64_t micro_batch,
                    Optimizer optimizer) {
  const Graph graph = ProfiledGraph({work});
  const Cluster cluster = FlatCluster(1, memory);
  const auto costs = MakeAnalyticCostModel(graph);
  const Strategy strategy = MakeStrategy(graph, {{0}}, {{0}}, 16, micro_batch);
  const absl::Status status =
      Evaluate(graph, cluster, *costs, strategy, {.optimizer = optimizer}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  return std::string(status.message());
}

TEST(OverMemoryTest, ActivationsDominate) {
  const std::string message = Message({1, 1, 10 * kMiB, 4, {}}, 32 * kMiB, 16, Optimizer::kAdam);
  EXPECT_THAT(message, AllOf(HasSubstr("device 0 'node0/device0'"), HasSubstr("has 32 MiB"),
                             HasSubstr("128 MiB too much"), HasSubstr("activations dominate"),
                             HasSubstr("a micro-batch smaller than 16")));
  EXPECT_THAT(Message({1, 1, 100 * kMiB, 4, {}}, 32 * kMiB, 1, Optimizer::kAdam),
              Not(HasSubstr("a micro-batch smaller")));
}

TEST(OverMemoryTest, OptimizerStateDominates) {
  const std::string message = Message({1, 1, 0, 10 * kMiB, {}}, 32 * kMiB, 1, Optimizer::kAdam);
  // Parameters and gradients tie with Adam's two moments; the larger help is named.
  EXPECT_THAT(message, AllOf(HasSubstr("needs 40 MiB"), HasSubstr("8 MiB too much"),
                             HasSubstr("optimizer state 20 MiB"), HasSubstr("SGD instead of Adam"),
                             HasSubstr("saves 20 MiB")));
}

TEST(OverMemoryTest, ParametersDominate) {
  const std::string message = Message({1, 1, 0, 10 * kMiB, {}}, 16 * kMiB, 1, Optimizer::kSgd);
  EXPECT_THAT(message,
              AllOf(HasSubstr("needs 20 MiB"), HasSubstr("parameters"), HasSubstr("dominate"),
                    HasSubstr("more devices"), Not(HasSubstr("SGD"))));
}

}  // namespace
}  // namespace stagewright
