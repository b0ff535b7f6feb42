#include "worker_daemon/checkpoint/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/data/safetensors_files.h"
#include "tests/worker_daemon/checkpoint/tied_graph.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A parameter that no node reads.
const Parameter kUnused = {"unused", DType::kFloat32, {1}, false, true, {}};

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

class ShardsTest : public ::testing::Test {
 protected:
  std::string Shard(int device, const std::vector<ParameterBytes>& parameters,
                    const std::vector<TensorView>& others = {}) {
    const std::string path = ShardPath(directory_.File(""), DeviceId(device));
    const absl::Status status = WriteShard(graph_, parameters, others, path);
    EXPECT_TRUE(status.ok()) << status;
    return path;
  }
  std::vector<float> Read(const std::string& path, const std::string& name) {
    const auto file = SafetensorsFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    const TensorView* tensor = file->Find(name);
    return tensor == nullptr ? std::vector<float>() : Values<float>(*tensor);
  }

  const Graph graph_ = Tied({kUnused});
  const TempDirectory directory_;
  const std::vector<float> embedding_ = {1, 2}, bias_ = {3}, old_ = {9}, count_ = {7};
};

TEST_F(ShardsTest, MergeUnderAllNamesAndKeepWhatNothingUses) {
  const std::string original = directory_.File("original.safetensors");
  ASSERT_TRUE(WriteSafetensors(original, {View("bias", DType::kFloat32, {1}, old_),
                                          View("unused", DType::kFloat32, {1}, old_),
                                          View("steps", DType::kFloat32, {1}, count_)})
                  .ok());
  const std::vector<std::string> shards = {Shard(0, {{ParameterId(0), BytesOf(embedding_)}}),
                                           Shard(12, {{ParameterId(1), BytesOf(bias_)}})};
  EXPECT_THAT(shards[1], HasSubstr("shard-00012.safetensors"));
  const std::string merged = directory_.File("model.safetensors");
  const absl::Status status = MergeShards(graph_, shards, original, merged);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(Read(merged, "embedding"), ElementsAre(1, 2));
  EXPECT_THAT(Read(merged, "output.weight"), ElementsAre(1, 2));
  EXPECT_THAT(Read(merged, "bias"), ElementsAre(3));
  EXPECT_THAT(Read(merged, "unused"), ElementsAre(9));
  EXPECT_THAT(Read(merged, "steps"), ElementsAre(7));
}

// Two parts of "w", 2 x 4, by columns; "again" is another name of it.
Graph Sliced() {
  GraphData data = Tied({}).data();
  for (const int64_t begin : {0, 2}) {
    Parameter part;
    part.name = PartName("w", static_cast<int32_t>(begin / 2), 2);
    part.shape = {2, 2};
    part.slice = {"w", {"again"}, {2, 4}, 1, begin};
    data.parameters.push_back(part);
  }
  return *Graph::Create(std::move(data));
}

TEST_F(ShardsTest, SlicesBecomeTheTensorAgain) {
  const Graph graph = Sliced();
  const ParameterId first(graph.parameters().size() - 2), second(graph.parameters().size() - 1);
  const std::vector<float> left = {1, 2, 5, 6}, right = {3, 4, 7, 8}, whole(8, 9);
  const std::string original = directory_.File("original.safetensors");
  ASSERT_TRUE(WriteSafetensors(original, {View("w", DType::kFloat32, {2, 4}, whole)}).ok());
  const std::string a = ShardPath(directory_.File(""), DeviceId(0));
  const std::string b = ShardPath(directory_.File(""), DeviceId(1));
  ASSERT_TRUE(
      WriteShard(graph, {{ParameterId(0), BytesOf(embedding_)}, {second, BytesOf(right)}}, {}, a)
          .ok());
  ASSERT_TRUE(
      WriteShard(graph, {{ParameterId(1), BytesOf(bias_)}, {first, BytesOf(left)}}, {}, b).ok());
  const std::string merged = directory_.File("model.safetensors");
  const absl::Status status = MergeShards(graph, {a, b}, original, merged);
  ASSERT_TRUE(status.ok()) << status;
  for (const char* name : {"w", "again"})
    EXPECT_THAT(Read(merged, name), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8)) << name;
  EXPECT_THAT(Read(merged, "w[1/2]"), ElementsAre());
  EXPECT_THAT(MergeShards(graph, {a}, original, merged).message(),
              HasSubstr("no shard has all parts of parameter \"w\""));
}

TEST_F(ShardsTest, WhatNothingReadsComesFromAShardIfOneHasIt) {
  const Graph graph = Tied({{"unused", DType::kFloat32, {1}, false, true, {"unused.too"}}});
  const std::string original = directory_.File("original.safetensors");
  ASSERT_TRUE(WriteSafetensors(original, {View("unused", DType::kFloat32, {1}, old_)}).ok());
  const std::string path = ShardPath(directory_.File(""), DeviceId(0));
  ASSERT_TRUE(WriteShard(graph,
                         {{ParameterId(0), BytesOf(embedding_)}, {ParameterId(1), BytesOf(bias_)}},
                         {View("steps", DType::kFloat32, {1}, count_),
                          View("unused", DType::kFloat32, {1}, count_)},
                         path)
                  .ok());
  const std::string merged = directory_.File("model.safetensors");
  const absl::Status status = MergeShards(graph, {path}, original, merged);
  ASSERT_TRUE(status.ok()) << status;
  for (const char* name : {"unused", "unused.too", "steps"})
    EXPECT_THAT(Read(merged, name), ElementsAre(7)) << name;
}

TEST_F(ShardsTest, ConstantsOfTheGraphAreNotExpected) {
  Parameter constant = kUnused;
  constant.data = std::string(4, 'c');
  const Graph graph = Tied({constant});
  const std::string shard =
      Shard(0, {{ParameterId(0), BytesOf(embedding_)}, {ParameterId(1), BytesOf(bias_)}});
  const std::string merged = directory_.File("model.safetensors");
  ASSERT_TRUE(MergeShards(graph, {shard}, "", merged).ok());
  EXPECT_TRUE(Read(merged, "unused").empty());
}

TEST_F(ShardsTest, MissingAndDoubleParametersAreNamed) {
  const std::string merged = directory_.File("model.safetensors");
  const std::string first = Shard(0, {{ParameterId(0), BytesOf(embedding_)}});
  absl::Status status = MergeShards(graph_, {first}, "", merged);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no shard has parameter \"bias\""));
  const std::string second =
      Shard(1, {{ParameterId(0), BytesOf(embedding_)}, {ParameterId(1), BytesOf(bias_)}});
  status = MergeShards(graph_, {first, second}, "", merged);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(second + ": tensor \"embedding\" is in " + first));
  WriteBytes(second, "no tensors");
  EXPECT_FALSE(MergeShards(graph_, {first, second}, "", merged).ok());
  EXPECT_FALSE(std::filesystem::exists(merged));
}

TEST_F(ShardsTest, AnotherShapeIsNamed) {
  const std::string shard = directory_.File("shard.safetensors");
  ASSERT_TRUE(WriteSafetensors(shard, {View("embedding", DType::kFloat32, {1}, bias_),
                                       View("bias", DType::kFloat32, {1}, bias_),
                                       View("unused", DType::kFloat32, {1}, bias_)})
                  .ok());
  const absl::Status status =
      MergeShards(graph_, {shard}, "", directory_.File("model.safetensors"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"embedding\" is float32[1], the graph says float32[2]"));
}

}  // namespace
}  // namespace stagewright::testing
