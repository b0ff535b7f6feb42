#include "common/data/weights_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::EndsWith;
using ::testing::HasSubstr;

const std::vector<float> kTwo = {1, 2};

Graph OneLayer() {
  GraphData data;
  data.name = "layer";
  data.parameters.push_back({"weight", DType::kFloat32, {2}});
  data.parameters.back().aliases = {"tied"};
  Node node;
  node.name = "sum";
  node.target = "aten.sum.default";
  node.args = {{ParameterId(0)}};
  node.outputs = {{DType::kFloat32, {}}};
  data.nodes = {node};
  return *Graph::Create(data);
}

absl::Status Check(const std::string& name, const std::vector<int64_t>& shape = {2}) {
  const TempDirectory directory;
  const std::string path = directory.File("w.safetensors");
  EXPECT_TRUE(WriteSafetensors(path, {View(name, DType::kFloat32, shape, kTwo)}).ok());
  return CheckWeights(OneLayer(), SafetensorsFile::Open(path)->header());
}

TEST(WeightsCheckTest, NamesAndAliasesWillDo) {
  EXPECT_TRUE(Check("weight").ok());
  EXPECT_TRUE(Check("tied").ok());
}

TEST(WeightsCheckTest, AMissingTensorIsNamed) {
  const absl::Status status = Check("other");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              EndsWith("w.safetensors: there is no tensor \"weight\""));
}

TEST(WeightsCheckTest, WhatWrappersAddIsToldWithWhatToDo) {
  EXPECT_THAT(std::string(Check("module.weight").message()),
              HasSubstr("there is no tensor \"weight\", but \"module.weight\": \"module.\" is what "
                        "DistributedDataParallel and DataParallel add; save "
                        "model.module.state_dict() instead"));
  EXPECT_THAT(std::string(Check("_orig_mod.weight").message()),
              HasSubstr("torch.compile adds; save model._orig_mod.state_dict() instead"));
}

TEST(WeightsCheckTest, AnotherShapeIsSaid) {
  const absl::Status status = Check("weight", {2, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor \"weight\" is float32[2, 1], the graph says float32[2]"));
}

}  // namespace
}  // namespace stagewright
