#include "common/training/precision.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

Graph OneLayer(DType dtype) {
  testing::GraphBuilder make("layer");
  make.Loss(make.Linear(make.Feature("x", {3}), 3, 3), {3});
  for (Parameter& parameter : make.data.parameters) parameter.dtype = dtype;
  return make.Build();
}

TEST(CheckPrecision, MixedPrecisionTrainsFloat32) {
  const Graph graph = OneLayer(DType::kFloat64);
  EXPECT_EQ(Check(Precision::kGraph, graph, false), absl::OkStatus());
  EXPECT_EQ(Check(Precision::kFloat16, graph, false, "spec.").message(),
            absl::StrCat("spec.precision fp16: mixed precision trains float32 parameters, \"",
                         graph.parameters()[0].name, "\" is of another type"));
  EXPECT_TRUE(absl::IsInvalidArgument(Check(Precision::kBFloat16, graph, false)));
}

TEST(CheckPrecision, DevicesOfAnAsynchronousPlanAgreeOnNoScale) {
  const Graph graph = OneLayer(DType::kFloat32);
  EXPECT_EQ(Check(Precision::kFloat16, graph, false), absl::OkStatus());
  EXPECT_EQ(Check(Precision::kBFloat16, graph, true), absl::OkStatus());
  EXPECT_EQ(Check(Precision::kFloat16, graph, true).message(),
            "precision fp16: an asynchronous plan has no point at which all devices agree on the "
            "scale of the loss; bf16 needs none");
}

}  // namespace
}  // namespace stagewright
