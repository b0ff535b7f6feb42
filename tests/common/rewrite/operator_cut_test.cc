#include "common/rewrite/operator_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::Number;

Graph Profile(const std::string& description, Bytes parameters = 100) {
  GraphData data = testing::ProfiledGraph({{.forward = 1, .parameter_bytes = parameters}}).data();
  data.nodes[0].module = description;
  return *Graph::Create(std::move(data));
}

TEST(OperatorCutTest, ReadsWhatAProfileSays) {
  struct Case {
    const char* description;
    const char* dimension;
    int64_t size;
  };
  for (const Case& c :
       {Case{"Linear(in_features=9216, out_features=4096, bias=True)", "out_features", 4096},
        Case{"Conv2d(128, 256, kernel_size=(3, 3), stride=(1, 1))", "out_channels", 256},
        Case{"Embedding(32320, 1024, padding_idx=0)", "embedding_dim", 1024}}) {
    const auto cut = CutOf(Profile(c.description), NodeId(0));
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(cut->dimension, c.dimension);
    EXPECT_EQ(cut->size, c.size);
    EXPECT_TRUE(cut->known);
  }
}

TEST(OperatorCutTest, ANameAloneSaysNothing) {
  for (const char* description : {"top0", ""}) {
    const auto cut = CutOf(Profile(description), NodeId(0));
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_FALSE(cut->known);
    EXPECT_TRUE(CheckParts(Profile(description), NodeId(0), *cut, 7).ok());
  }
}

TEST(OperatorCutTest, RefusesOtherLayersAndThoseWithoutParameters) {
  EXPECT_THAT(CutOf(Profile("LSTM(1024, 1024)"), NodeId(0)).status().message(),
              HasSubstr("node \"n0\" (LSTM(1024, 1024)) cannot be cut: the profile says"));
  EXPECT_THAT(CutOf(Profile("Linear(broken)"), NodeId(0)).status().message(),
              HasSubstr("cannot be cut"));
  EXPECT_THAT(CutOf(Profile("top0", 0), NodeId(0)).status().message(),
              HasSubstr("it has no parameters"));
}

TEST(OperatorCutTest, NamesNumbersThatDivide) {
  const Graph graph = Profile("Linear(in_features=10, out_features=12, bias=True)");
  const OperatorCut cut = *CutOf(graph, NodeId(0));
  for (int32_t parts : {2, 3, 4, 6, 12}) EXPECT_TRUE(CheckParts(graph, NodeId(0), cut, parts).ok());
  EXPECT_THAT(CheckParts(graph, NodeId(0), cut, 5).message(),
              HasSubstr("5 parts do not divide out_features = 12; near by do 4 and 6"));
  EXPECT_THAT(CheckParts(graph, NodeId(0), cut, 13).message(), HasSubstr("near by do 12"));
  for (int32_t parts : {-1, 0, 1, 2000})
    EXPECT_THAT(CheckParts(graph, NodeId(0), cut, parts).message(),
                HasSubstr("is no number of parts"));
  const Graph prime = Profile("Linear(in_features=10, out_features=7, bias=True)");
  EXPECT_THAT(CheckParts(prime, NodeId(0), *CutOf(prime, NodeId(0)), 2).message(),
              HasSubstr("near by do 7"));
}

Graph Layers() {
  GraphBuilder build("layers");
  const Argument x = build.Feature("x", {6});
  const Argument own = build.Linear(x, 6, 8);
  build.data.nodes.back().module = "encoder";
  const Argument made = build.Add("aten.mul.Tensor", {own, own}, {8});
  build.data.nodes.back().module = "encoder";
  const Argument other = build.Add("aten.mm.default", {made, build.Weight("w", {8, 10})}, {10});
  build.data.nodes.back().module = "decoder";
  build.Linear(other, 10, 4);
  build.data.nodes.back().module = "decoder";
  build.Loss(build.Add("aten.relu.default", {Argument{ValueRef{NodeId(3), 0}}}, {4}), {4});
  return build.Build();
}

TEST(OperatorCutTest, KnowsOperatorsWithAMatrixOfTheirOwn) {
  const Graph graph = Layers();
  EXPECT_EQ(CutOf(graph, NodeId(0))->size, 8);
  EXPECT_EQ(CutOf(graph, NodeId(2))->size, 10);
  EXPECT_THAT(CutOf(graph, NodeId(1)).status().message(),
              HasSubstr("aten.mul.Tensor is no linear layer or embedding"));
}

TEST(OperatorCutTest, FindsNodesByNameOrByModule) {
  const Graph graph = Layers();
  EXPECT_EQ(*NodeToCut(graph, graph.node(NodeId(1)).name), NodeId(1));
  EXPECT_EQ(*NodeToCut(graph, "encoder"), NodeId(0));
  EXPECT_THAT(NodeToCut(graph, "decoder").status().message(),
              HasSubstr("module \"decoder\" has several nodes that can be cut: "));
  EXPECT_THAT(NodeToCut(graph, "nobody").status().message(),
              HasSubstr("there is no node or module \"nobody\""));
}

}  // namespace
}  // namespace stagewright
