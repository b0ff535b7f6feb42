#include "worker_daemon/checkpoint/unread_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/data/safetensors_files.h"
#include "tests/worker_daemon/checkpoint/tied_graph.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const UnreadTensors& unread) {
  std::vector<std::string> names;
  for (const TensorView& tensor : unread.tensors()) names.push_back(tensor.name);
  return names;
}

// The tied graph, and tensors that it does not read: one under its alias, a constant, and one that
// is in the weights file alone.
class UnreadTensorsTest : public ::testing::Test {
 protected:
  UnreadTensorsTest() {
    program_.stages.emplace_back();
    program_.stages[0].nodes = {NodeId(0)};
    program_.stages[0].devices = {DeviceId(4), DeviceId(2)};
    program_.devices.resize(2);
    program_.devices[0].device = DeviceId(2);
    program_.devices[1].device = DeviceId(4);
    EXPECT_TRUE(WriteSafetensors(weights_, {View("embedding", DType::kFloat32, {2}, two_),
                                            View("bias", DType::kFloat32, {1}, one_),
                                            View("scale.old", DType::kFloat32, {1}, one_),
                                            View("steps", DType::kFloat32, {1}, count_)})
                    .ok());
  }
  static Graph MakeGraph() {
    Parameter scale = {"scale", DType::kFloat32, {1}, true, false, {"scale.old"}};
    Parameter constant = {"constant", DType::kFloat32, {1}, false, true, {}};
    constant.data = std::string(4, 'c');
    return Tied({scale, constant});
  }
  // After a step, in a directory of its own.
  std::shared_ptr<const Checkpoint> Saved(const std::vector<TensorView>& tensors,
                                          const Graph& graph) const {
    const std::string directory = directory_.File("step");
    auto files = WriteDeviceFiles(directory, DeviceId(2), tensors, {}, {});
    EXPECT_TRUE(files.ok()) << files.status();
    Manifest manifest;
    manifest.files = *files;
    const absl::Status complete = CompleteCheckpoint(directory, graph, manifest);
    EXPECT_TRUE(complete.ok()) << complete;
    auto checkpoint = Checkpoint::Open(directory);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return std::make_shared<const Checkpoint>(*std::move(checkpoint));
  }

  const Graph graph_ = MakeGraph();
  Program program_;
  const TempDirectory directory_;
  const std::string weights_ = directory_.File("weights.safetensors");
  const std::vector<float> one_ = {1}, two_ = {2, 2}, count_ = {7}, newer_ = {8};
};

TEST_F(UnreadTensorsTest, AreOfTheWeightsFileUnderTheirParametersName) {
  EXPECT_EQ(UnreadWriter(program_), DeviceId(2));
  const auto unread = UnreadTensors::Open(graph_, program_, weights_, nullptr);
  ASSERT_TRUE(unread.ok()) << unread.status();
  EXPECT_THAT(Names(*unread), ElementsAre("scale", "steps"));
  EXPECT_THAT(Values<float>(unread->tensors()[1]), ElementsAre(7));
}

TEST_F(UnreadTensorsTest, AreOfTheCheckpointThatAJobGoesOnFrom) {
  const auto checkpoint = Saved(
      {View("embedding", DType::kFloat32, {2}, two_), View("bias", DType::kFloat32, {1}, one_),
       View("scale", DType::kFloat32, {1}, newer_), View("steps", DType::kFloat32, {1}, newer_)},
      graph_);
  const auto unread = UnreadTensors::Open(graph_, program_, "nowhere", checkpoint);
  ASSERT_TRUE(unread.ok()) << unread.status();
  EXPECT_THAT(Names(*unread), ElementsAre("scale", "steps"));
  EXPECT_THAT(Values<float>(unread->tensors()[0]), ElementsAre(8));
  EXPECT_THAT(Values<float>(unread->tensors()[1]), ElementsAre(8));
}

// As checkpoints were when they had only what stages read.
TEST_F(UnreadTensorsTest, WhatACheckpointLacksIsInTheWeightsFile) {
  const auto checkpoint = Saved(
      {View("embedding", DType::kFloat32, {2}, two_), View("bias", DType::kFloat32, {1}, one_)},
      Tied());
  const auto unread = UnreadTensors::Open(graph_, program_, weights_, checkpoint);
  ASSERT_TRUE(unread.ok()) << unread.status();
  EXPECT_THAT(Names(*unread), ElementsAre("scale"));
  EXPECT_THAT(Values<float>(unread->tensors()[0]), ElementsAre(1));
}

TEST_F(UnreadTensorsTest, WhatIsMissingOrOfAnotherShapeIsNamed) {
  ASSERT_TRUE(WriteSafetensors(weights_, {View("scale", DType::kFloat32, {2}, two_)}).ok());
  auto unread = UnreadTensors::Open(graph_, program_, weights_, nullptr);
  EXPECT_EQ(unread.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unread.status().message()),
              HasSubstr(weights_ + ": tensor \"scale\" is float32[2], the graph says float32[1]"));
  ASSERT_TRUE(WriteSafetensors(weights_, {View("bias", DType::kFloat32, {1}, one_)}).ok());
  unread = UnreadTensors::Open(graph_, program_, weights_, nullptr);
  EXPECT_EQ(unread.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unread.status().message()),
              HasSubstr(weights_ + ": there is no tensor \"scale\""));
}

}  // namespace
}  // namespace stagewright::testing
