#include "worker_daemon/engine/parameter_store.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/data/safetensors.h"
#include "tests/worker_daemon/engine/local_training.h"
#include "tests/worker_daemon/engine/test_graphs.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;

Graph TwoLayers() {
  GraphMaker make;
  const int first = make.AddLinear("first", In(make.AddInput("x", {-1, 64})), 64, 64);
  const int second = make.AddLinear("second", Value(first), 64, 64);
  return make.Finish(make.AddNode("aten.mean.default", {Value(second)}, {Meta({})}));
}

TEST(ParameterStoreTest, WeightsThatBecomeShorterWhileTheyAreLoadedAreAnErrorThatNamesThem) {
  const Graph graph = TwoLayers();
  const std::string path = WriteWeights(graph, "shrinking_weights.safetensors");
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < graph.parameters().size(); ++i)
    ids.push_back(ParameterId(static_cast<int32_t>(i)));
  const auto load = [&] {
    return ParameterStore::Load(
               graph, ids, [&](const std::string& name) { return file->Find(name); }, path,
               at::kCPU)
        .status();
  };
  EXPECT_TRUE(load().ok()) << load();
  std::filesystem::resize_file(path, 4096);
  const absl::Status status = load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

}  // namespace
}  // namespace stagewright
