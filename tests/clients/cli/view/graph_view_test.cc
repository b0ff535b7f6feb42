#include "clients/cli/view/graph_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;

Graph TwoLayers() {
  testing::GraphBuilder builder("net");
  const Argument x = builder.Feature("x", {4});
  builder.Loss(builder.Linear(builder.Linear(x, 4, 8), 8, 2), {2});
  return builder.Build();
}

TEST(GraphText, HasInputsStructureAndALineForEachOperator) {
  const Graph graph = TwoLayers();
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const std::string text = GraphText(graph, operators, Decompose(operators.dag()));
  EXPECT_THAT(text, HasSubstr("net: 3 nodes, 3 planner operators, 58 trainable parameters"));
  EXPECT_THAT(text, HasSubstr("input   x  float32[B, 4]\n"));
  EXPECT_THAT(text, HasSubstr("target  target  float32[B, 2]\n"));
  EXPECT_THAT(text, HasSubstr("structure  depth 3, series-parallel\n"));
  EXPECT_THAT(text, HasSubstr("float32[B, 8]"));
}

TEST(GraphText, ShowsTheTimesOfAProfile) {
  const Graph graph = testing::ProfiledChain(2, {1000, 2000, 1024, 2048, {}});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const std::string text = GraphText(graph, operators, Decompose(operators.dag()));
  EXPECT_THAT(text, HasSubstr("forward  backward"));
  EXPECT_THAT(text, HasSubstr("2 KiB"));
}

TEST(GraphJson, HasSuccessorsAndSizes) {
  const Graph graph = TwoLayers();
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const nlohmann::json json = GraphJson(graph, operators, Decompose(operators.dag()));
  EXPECT_EQ(json["name"], "net");
  EXPECT_EQ(json["executable"], true);
  EXPECT_EQ(json["parameters"], 4);
  EXPECT_EQ(json["trainable_bytes"], 58 * 4);
  EXPECT_EQ(json["depth"], 3);
  ASSERT_EQ(json["operators"].size(), 3u);
  EXPECT_EQ(json["operators"][0]["successors"], nlohmann::json::array({1}));
  EXPECT_EQ(json["operators"][1]["nodes"], nlohmann::json::array({"n1"}));
}

}  // namespace
}  // namespace stagewright::cli
