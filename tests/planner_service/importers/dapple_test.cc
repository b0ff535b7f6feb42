#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "planner_service/importers/profile.h"
#include "tests/support/shared_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Edges that start with a space, blank lines and integers, as in the authors' files.
constexpr char kProfile[] =
    "node1 -- Input -- forward_compute_time=3.4, backward_compute_time=0, "
    "activation_size=19000000, parameter_size=0\n"
    "\n"
    "node2 -- layer -- forward_compute_time=8, backward_compute_time=16, activation_size=320, "
    "parameter_size=1000\r\n"
    " node1 -- node2\n"
    "\n";

TEST(DappleTest, EverythingButParametersScalesWithTheBatch) {
  const auto profile = ImportDapple(kProfile, "graphs/vgg-19-pbs-32.txt");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const Graph& graph = profile->graph;
  EXPECT_EQ(graph.name(), "vgg-19-pbs-32");
  ASSERT_EQ(graph.size(), 2);  // The input stays.
  EXPECT_THAT(graph.dag().Edges(), ElementsAre(std::pair(0, 1)));
  EXPECT_EQ(graph.node(NodeId(1)).cost->samples, 32);
  EXPECT_EQ(graph.node(NodeId(1)).cost->parameter_bytes, 1000);
  const auto costs = MakeAnalyticCostModel(graph);
  EXPECT_EQ(costs->Time(NodeId(1), {}, 64).forward, 16'000'000);
  EXPECT_EQ(costs->Time(NodeId(1), {}, 8).backward, 4'000'000);
  EXPECT_EQ(costs->SavedBytes(NodeId(1), 64), 640);
  EXPECT_TRUE(profile->warnings.empty());
}

TEST(DappleTest, TheProfiledBatchComesFromTheOptionThenTheName) {
  EXPECT_EQ(ImportDapple(kProfile, "a-pbs-4.txt", {.profile_batch = 7})
                ->graph.node(NodeId(0))
                .cost->samples,
            7);
  for (const char* name : {"unnamed.txt", "a-pbs-.txt", "a-pbs-99999999999999999999.txt"}) {
    const auto unknown = ImportDapple(kProfile, name);
    ASSERT_TRUE(unknown.ok()) << unknown.status();
    EXPECT_EQ(unknown->graph.node(NodeId(0)).cost->samples, 1);
    EXPECT_THAT(unknown->warnings, ElementsAre(HasSubstr("the profiled batch is unknown")));
  }
  EXPECT_THAT(std::string(ImportDapple(kProfile, "a", {.profile_batch = -1}).status().message()),
              HasSubstr("profile_batch: -1"));
}

TEST(DappleTest, PublishedProfiles) {
  const std::tuple<const char*, int32_t, int64_t> files[] = {{"dapple/bert-48-pbs-2.txt", 53, 2},
                                                             {"dapple/gnmt-16-pbs-64.txt", 96, 64},
                                                             {"dapple/vgg-19-pbs-32.txt", 26, 32}};
  for (const auto& [name, operators, batch] : files) {
    STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, name);
    const auto profile = ImportProfileFile(ProfileFormat::kDapple, path);
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(profile->graph.size(), operators) << name;
    EXPECT_EQ(profile->graph.node(NodeId(0)).cost->samples, batch) << name;
  }
}

}  // namespace
}  // namespace stagewright
