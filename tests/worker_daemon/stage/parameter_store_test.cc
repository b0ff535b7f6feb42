#include "worker_daemon/stage/parameter_store.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/data/safetensors.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

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

TEST(ParameterStoreTest, ConstantsAreInTheGraph) {
  GraphMaker make;
  const int first = make.AddLinear("first", In(make.AddInput("x", {-1, 4})), 4, 2);
  const int scale = make.AddParameter("scale", {2}, /*trainable=*/false);
  const double values[] = {2.5, -3};
  make.data.parameters[static_cast<size_t>(scale)].data =
      std::string(reinterpret_cast<const char*>(values), sizeof(values));
  const int scaled = make.AddNode("aten.mul.Tensor", {Value(first), Param(scale)}, {Meta({-1, 2})});
  const Graph graph = make.Finish(make.AddNode("aten.mean.default", {Value(scaled)}, {Meta({})}));
  const auto store = ParameterStore::Load(graph, {ParameterId(0), ParameterId(scale)},
                                          WriteWeights(graph, "constants.safetensors"), at::kCPU);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(at::equal((*store)[ParameterId(scale)], at::tensor({2.5, -3.0}, at::kDouble)));
  EXPECT_FALSE((*store)[ParameterId(scale)].requires_grad());
}

TEST(ParameterStoreTest, ABufferTakesAValueInItsPlaceOrBesideIt) {
  GraphMaker make;
  const int first = make.AddLinear("first", In(make.AddInput("x", {-1, 4})), 4, 2);
  const ParameterId mean(make.AddParameter("mean", {2}, /*trainable=*/false));
  const Graph graph = make.Finish(make.AddNode("aten.mean.default", {Value(first)}, {Meta({})}));
  auto store =
      ParameterStore::Load(graph, {mean}, WriteWeights(graph, "assign.safetensors"), at::kCPU);
  ASSERT_TRUE(store.ok()) << store.status();
  const at::Tensor held = (*store)[mean];
  store->Assign(mean, at::full({2}, 4.0, at::kDouble));
  EXPECT_TRUE(held.eq(4).all().item<bool>());
  store->Replace(mean, at::full({2}, 5.0, at::kDouble));
  EXPECT_TRUE(held.eq(4).all().item<bool>());
  EXPECT_TRUE((*store)[mean].eq(5).all().item<bool>());
}

}  // namespace
}  // namespace stagewright::testing
