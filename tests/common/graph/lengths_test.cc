#include "common/graph/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// mean(x * 2) of x: float32[samples, length], and a parameter that nothing reads.
GraphData OfLength(int64_t length) {
  GraphData data;
  data.name = "lengths";
  data.inputs = {{"x", {DType::kFloat32, {{1, 0}, {0, length}}}, InputRole::kFeature},
                 {"target", {DType::kInt64, {{1, 0}}}, InputRole::kTarget}};
  data.parameters = {{"w", DType::kFloat32, {3}}};
  Node scale;
  scale.name = "scale";
  scale.target = "aten.mul.Scalar";
  scale.args = {{InputId(0)}, {static_cast<double>(length)}};
  scale.outputs = {{DType::kFloat32, {{1, 0}, {0, length}}}};
  Node flat;
  flat.name = "flat";
  flat.target = "aten.reshape.default";
  flat.args = {{ValueRef{NodeId(0), 0}}, {Argument::List{{SymInt{length, 0}}}}};
  flat.outputs = {{DType::kFloat32, {{length, 0}}, SampleLayout{0, 1}}};
  Node mean;
  mean.name = "mean";
  mean.target = "aten.mean.default";
  mean.args = {{ValueRef{NodeId(1), 0}}};
  mean.outputs = {{DType::kFloat32, {}}};
  data.nodes = {scale, flat, mean};
  data.loss = ValueRef{NodeId(2), 0};
  return data;
}

Graph Make(GraphData data) {
  auto graph = Graph::Create(std::move(data));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

std::string Differs(const std::function<void(GraphData&)>& change) {
  GraphData data = OfLength(5);
  change(data);
  const absl::Status status = CheckSameButSizes(Make(OfLength(8)), Make(std::move(data)));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(Lengths, SizesAndNumbersMayDiffer) {
  const Graph longer = Make(OfLength(8)), shorter = Make(OfLength(5));
  EXPECT_TRUE(CheckSameButSizes(longer, shorter).ok());
  EXPECT_FALSE(TakeSameSamples(longer, shorter));
  EXPECT_TRUE(TakeSameSamples(longer, Make(OfLength(8))));
  EXPECT_EQ(SampleText(shorter), "x[5], target[]");
}

TEST(Lengths, AnythingElseMayNot) {
  EXPECT_THAT(Differs([](GraphData& data) { data.nodes[0].target = "aten.add.Scalar"; }),
              HasSubstr("nodes[0] \"scale\" is not that of the graph"));
  EXPECT_THAT(Differs([](GraphData& data) { data.nodes[0].args[1] = {true}; }),
              HasSubstr("nodes[0] \"scale\""));
  EXPECT_THAT(Differs([](GraphData& data) { data.nodes[0].batch_dependent = true; }),
              HasSubstr("nodes[0] \"scale\""));
  EXPECT_THAT(Differs([](GraphData& data) {
                data.nodes[2].args[0] = {ValueRef{NodeId(0), 0}};
              }),
              HasSubstr("nodes[2] \"mean\""));
  EXPECT_THAT(Differs([](GraphData& data) { data.parameters[0].shape = {4}; }),
              HasSubstr("parameters[0] \"w\""));
  EXPECT_THAT(Differs([](GraphData& data) { data.parameters[0].trainable = false; }),
              HasSubstr("parameters[0] \"w\""));
  EXPECT_THAT(Differs([](GraphData& data) { data.inputs[0].name = "y"; }),
              HasSubstr("inputs[0] \"y\""));
  EXPECT_THAT(Differs([](GraphData& data) { data.inputs.pop_back(); }),
              HasSubstr("inputs: there are 1, not 2"));
  EXPECT_THAT(Differs([](GraphData& data) { data.loss_reduction = LossReduction::kSum; }),
              HasSubstr("loss_reduction is not that of the graph"));
  EXPECT_THAT(Differs([](GraphData& data) {
                data.prediction = ValueRef{NodeId(0), 0};
              }),
              HasSubstr("prediction is not that of the graph"));
}

}  // namespace
}  // namespace stagewright
