#include "common/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/common/data/npy_files.h"
#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// x: float32[samples, 2]; target: int64[3 * samples].
Graph TwoInputs() {
  GraphData data;
  data.name = "two";
  data.inputs = {{"x", {DType::kFloat32, {{1, 0}, {0, 2}}}, InputRole::kFeature},
                 {"target", {DType::kInt64, {{3, 0}}, SampleLayout{0, 1}}, InputRole::kTarget}};
  Node node;
  node.name = "sum";
  node.target = "aten.sum.default";
  node.args = {{InputId(0)}};
  node.outputs = {{DType::kFloat32, {}}};
  data.nodes = {node};
  data.loss = ValueRef{NodeId(0), 0};
  return *Graph::Create(data);
}

const std::vector<float> kX = {0, 1, 10, 11, 20, 21, 30, 31};
const std::vector<int64_t> kTarget = {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32};

template <typename T>
absl::Status Gather(const Dataset& data, InputId input, const std::vector<int64_t>& indices,
                    std::vector<T>& out) {
  EXPECT_EQ(static_cast<int64_t>(out.size() * sizeof(T)),
            static_cast<int64_t>(indices.size()) * data.SampleBytes(input));
  return data.Gather(input, indices, reinterpret_cast<std::byte*>(out.data()));
}

class DatasetTest : public ::testing::Test {
 protected:
  std::string Write(std::vector<TensorView> tensors) {
    const std::string path = directory_.File("data.safetensors");
    const absl::Status status = WriteSafetensors(path, std::move(tensors));
    EXPECT_TRUE(status.ok()) << status;
    return path;
  }
  std::string Error(std::vector<TensorView> tensors,
                    std::vector<InputId> needed = {InputId(0), InputId(1)}) {
    const std::string path = Write(std::move(tensors));
    const auto data = Dataset::Open(graph_, needed, path);
    EXPECT_FALSE(data.ok());
    EXPECT_THAT(std::string(data.status().message()), HasSubstr(path));
    return std::string(data.status().message());
  }

  const Graph graph_ = TwoInputs();
  const TempDirectory directory_;
  const TensorView x_ = View("x", DType::kFloat32, {4, 2}, kX);
  const TensorView target_ = View("target", DType::kInt64, {12}, kTarget);
};

TEST_F(DatasetTest, GathersSamplesInAnyOrder) {
  const auto data = Dataset::Open(graph_, {InputId(0), InputId(1)}, Write({x_, target_}));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->samples(), 4);
  EXPECT_EQ(data->SampleBytes(InputId(0)), 8);
  std::vector<float> x(4);
  EXPECT_TRUE(Gather(*data, InputId(0), {3, 1}, x).ok());
  EXPECT_THAT(x, ElementsAre(30, 31, 10, 11));
  std::vector<int64_t> target(6);
  EXPECT_TRUE(Gather(*data, InputId(1), {2, 2}, target).ok());
  EXPECT_THAT(target, ElementsAre(20, 21, 22, 20, 21, 22));
}

TEST_F(DatasetTest, OnlyNeededInputsMustBeThere) {
  EXPECT_TRUE(Dataset::Open(graph_, {InputId(0)}, Write({x_})).ok());
  // A stage in the middle needs none, and opens nothing.
  const auto none = Dataset::Open(graph_, {}, directory_.File("missing.safetensors"));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->samples(), 0);
}

TEST_F(DatasetTest, CountsSamplesOfAnyInput) {
  EXPECT_EQ(Dataset::CountSamples(graph_, Write({target_})).value(), 4);
  EXPECT_EQ(Dataset::CountSamples(graph_, Write({x_, target_})).value(), 4);
  EXPECT_THAT(std::string(Dataset::CountSamples(graph_, Write({})).status().message()),
              HasSubstr("no tensor named as an input"));
}

TEST_F(DatasetTest, ShardsAreOneDataSetHoweverTheyAreCut) {
  // 4 samples in shards of 1 and 3, x as .npy in shards of 3 and 1.
  const std::vector<float> first_x = {0, 1}, rest_x = {10, 11, 20, 21, 30, 31};
  const std::vector<int64_t> first = {0, 1, 2}, rest = {10, 11, 12, 20, 21, 22, 30, 31, 32};
  const auto write = [&](const std::string& name, std::vector<TensorView> tensors) {
    ASSERT_TRUE(WriteSafetensors(directory_.File(name), std::move(tensors)).ok());
  };
  write("s-0.safetensors",
        {View("x", DType::kFloat32, {1, 2}, first_x), View("target", DType::kInt64, {3}, first)});
  write("s-1.safetensors",
        {View("x", DType::kFloat32, {3, 2}, rest_x), View("target", DType::kInt64, {9}, rest)});
  WriteNpy<float>(directory_.File("x-0.npy"), "<f4", "(3, 2)", {0, 1, 10, 11, 20, 21});
  WriteNpy<float>(directory_.File("x-1.npy"), "<f4", "(1, 2)", {30, 31});
  const std::vector<InputId> both = {InputId(0), InputId(1)};
  for (const std::string& path :
       {directory_.File("s-*.safetensors"),
        "x=" + directory_.File("x-*.npy") + ",target=" + directory_.File("s-*.safetensors")}) {
    const auto data = Dataset::Open(graph_, both, path);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->samples(), 4);
    std::vector<float> x(8);
    EXPECT_TRUE(Gather(*data, InputId(0), {3, 0, 2, 1}, x).ok());
    EXPECT_THAT(x, ElementsAre(30, 31, 0, 1, 20, 21, 10, 11));
    EXPECT_TRUE(Gather(*data, InputId(0), {0, 1, 2, 3}, x).ok());  // Over the end of a shard.
    EXPECT_EQ(x, kX);
    std::vector<int64_t> target(6);
    EXPECT_TRUE(Gather(*data, InputId(1), {1, 0}, target).ok());
    EXPECT_THAT(target, ElementsAre(10, 11, 12, 0, 1, 2));
  }
}

TEST_F(DatasetTest, AFileThatBecomesShorterIsAnErrorAndNoCrash) {
  const std::string path = Write({x_, target_});
  const auto data = Dataset::Open(graph_, {InputId(0), InputId(1)}, path);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  // Tensors lie in the order of their names: the end is the last sample of x.
  std::vector<int64_t> target(12);
  EXPECT_TRUE(Gather(*data, InputId(1), {0, 1, 2, 3}, target).ok());
  EXPECT_EQ(target, kTarget);
  std::vector<float> x(6);
  EXPECT_TRUE(Gather(*data, InputId(0), {0, 1, 2}, x).ok());
  const absl::Status status = Gather(*data, InputId(0), {0, 3, 1}, x);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(path, ": it had ", size, " bytes when it was opened")));
}

TEST_F(DatasetTest, NamesTheShardThatIsBad) {
  const std::vector<InputId> both = {InputId(0), InputId(1)};
  const auto message = [&](const std::string& path) {
    return std::string(Dataset::Open(graph_, both, path).status().message());
  };
  ASSERT_TRUE(WriteSafetensors(directory_.File("s-0.safetensors"), {x_, target_}).ok());
  const std::string second = directory_.File("s-1.safetensors");
  WriteBytes(second, "junk");
  EXPECT_THAT(message(directory_.File("s-*")), HasSubstr(second + ": not a safetensors file"));
  ASSERT_TRUE(WriteSafetensors(second, {x_}).ok());
  EXPECT_THAT(message(directory_.File("s-*")),
              HasSubstr(second + ": there is no tensor \"target\""));
  // Equal totals do not make up for shards whose inputs do not belong together.
  const std::vector<int64_t> nine(9), fifteen(15);
  ASSERT_TRUE(WriteSafetensors(directory_.File("s-0.safetensors"),
                               {x_, View("target", DType::kInt64, {9}, nine)})
                  .ok());
  ASSERT_TRUE(WriteSafetensors(second, {x_, View("target", DType::kInt64, {15}, fifteen)}).ok());
  EXPECT_THAT(message(directory_.File("s-*")), HasSubstr("\"target\" has 3 samples, \"x\" has 4"));
  WriteNpy<double>(directory_.File("x.npy"), "<f8", "(4, 2)", std::vector<double>(8));
  EXPECT_THAT(message("x=" + directory_.File("x.npy") + ",target=" + second),
              HasSubstr("x.npy: the array for \"x\" is float64[4, 2]"));
  EXPECT_THAT(message("x=" + directory_.File("gone.npy") + ",target=" + second),
              HasSubstr("gone.npy: No such file"));
}

TEST_F(DatasetTest, WhatDoesNotFitTheGraphIsNamed) {
  EXPECT_THAT(Error({x_}), HasSubstr("there is no tensor \"target\""));
  const std::vector<double> doubles(8);
  EXPECT_THAT(Error({View("x", DType::kFloat64, {4, 2}, doubles), target_}),
              HasSubstr("\"x\" is float64[4, 2], the graph wants float32[samples, 2]"));
  EXPECT_THAT(Error({View("x", DType::kFloat32, {2, 4}, kX), target_}),
              HasSubstr("\"x\" is float32[2, 4]"));
  EXPECT_THAT(Error({View("x", DType::kFloat32, {8}, kX), target_}),
              HasSubstr("\"x\" is float32[8]"));
  const std::vector<int64_t> eleven(11), nine(9);
  EXPECT_THAT(Error({x_, View("target", DType::kInt64, {11}, eleven)}),
              HasSubstr("\"target\" is int64[11], the graph wants int64[3 * samples]"));
  EXPECT_THAT(Error({x_, View("target", DType::kInt64, {9}, nine)}),
              HasSubstr("\"target\" has 3 samples, \"x\" has 4"));
  const std::vector<float> empty;
  EXPECT_THAT(Error({View("x", DType::kFloat32, {0, 2}, empty), target_}),
              HasSubstr("\"x\" holds no sample"));
}

TEST(DatasetIndexTest, ASampleThatNoOperatorTakesIsNamedWithItsFile) {
  GraphData graph = TwoInputs().data();
  graph.parameters.push_back({"table", DType::kFloat32, {22, 4}});
  Node node;
  node.name = "lookup";
  node.target = "aten.embedding.default";
  node.args = {{ParameterId(0)}, {InputId(1)}};
  node.outputs = {{DType::kFloat32, {{3, 0}, {0, 4}}}};
  graph.nodes.push_back(node);
  const TempDirectory directory;
  for (int shard : {0, 1}) {
    const std::vector<float> x(kX.begin() + shard * 4, kX.begin() + shard * 4 + 4);
    const std::vector<int64_t> target(kTarget.begin() + shard * 6, kTarget.begin() + shard * 6 + 6);
    ASSERT_TRUE(WriteSafetensors(directory.File(absl::StrCat(shard, ".safetensors")),
                                 {View("x", DType::kFloat32, {2, 2}, x),
                                  View("target", DType::kInt64, {6}, target)})
                    .ok());
  }
  const auto data = Dataset::Open(*Graph::Create(graph), {InputId(0), InputId(1)},
                                  directory.File("*.safetensors"));
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<int64_t> out(6);
  EXPECT_TRUE(Gather(*data, InputId(1), {0, 1}, out).ok());
  const absl::Status status = Gather(*data, InputId(1), {1, 2}, out);  // 20, 21, 22
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("1.safetensors: tensor \"target\": sample 0 holds 22, the table of "
                        "\"lookup\" has rows 0 to 21"));
}

}  // namespace
}  // namespace stagewright
