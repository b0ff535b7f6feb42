#include "common/data/sample_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// x: float32[samples, length]; y: float32[samples, other]; target: int64[samples].
Graph OfLength(int64_t length, int64_t other) {
  GraphData data;
  data.name = "lengths";
  data.inputs = {{"x", {DType::kFloat32, {{1, 0}, {0, length}}}, InputRole::kFeature},
                 {"y", {DType::kFloat32, {{1, 0}, {0, other}}}, InputRole::kFeature},
                 {"target", {DType::kInt64, {{1, 0}}}, InputRole::kTarget}};
  Node node;
  node.name = "sum";
  node.target = "aten.sum.default";
  node.args = {{InputId(0)}};
  node.outputs = {{DType::kFloat32, {}}};
  data.nodes = {node};
  data.loss = ValueRef{NodeId(0), 0};
  return *Graph::Create(data);
}

class SampleLengthsTest : public ::testing::Test {
 protected:
  // A file of `samples` samples, numbered on from those before.
  void Write(int64_t samples, int64_t length, int64_t other) {
    std::vector<float> x(static_cast<size_t>(samples * length));
    std::iota(x.begin(), x.end(), static_cast<float>(100 * files_));
    const std::vector<float> y(static_cast<size_t>(samples * other));
    std::vector<int64_t> target(static_cast<size_t>(samples));
    std::iota(target.begin(), target.end(), written_);
    written_ += samples;
    const std::string path = directory_.File(absl::StrCat("part-", files_++, ".safetensors"));
    const absl::Status status =
        WriteSafetensors(path, {View("x", DType::kFloat32, {samples, length}, x),
                                View("y", DType::kFloat32, {samples, other}, y),
                                View("target", DType::kInt64, {samples}, target)});
    EXPECT_TRUE(status.ok()) << status;
  }
  std::string path() const { return directory_.File(""); }
  absl::StatusOr<SampleLengths> Read() const {
    const Graph* graphs[] = {&longer_, &shorter_, &mixed_};
    return SampleLengths::Read(graphs, path());
  }

  const Graph longer_ = OfLength(4, 3), shorter_ = OfLength(2, 3), mixed_ = OfLength(2, 1);
  const TempDirectory directory_;
  int files_ = 0;
  int64_t written_ = 0;
};

TEST_F(SampleLengthsTest, EveryFileIsOfOneLength) {
  Write(3, 4, 3);
  Write(2, 2, 3);
  Write(1, 2, 3);
  Write(2, 2, 1);
  Write(5, 4, 3);
  const auto lengths = Read();
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_THAT(lengths->runs(), ElementsAre(LengthRun{0, 3, 0}, LengthRun{3, 6, 1},
                                           LengthRun{6, 8, 2}, LengthRun{8, 13, 0}));
  EXPECT_EQ(lengths->samples(), 13);
  EXPECT_EQ(lengths->SamplesOf(0), 8);
  EXPECT_EQ(lengths->LengthOf(2), 0);
  EXPECT_EQ(lengths->LengthOf(3), 1);
  EXPECT_EQ(lengths->LengthOf(12), 0);
  EXPECT_EQ(lengths->IndexOf(0, 2), 2);
  EXPECT_EQ(lengths->IndexOf(0, 3), 8);
  EXPECT_TRUE(lengths->Has(1, 0, 4));
  EXPECT_FALSE(lengths->Has(1, 6, 13));
}

TEST_F(SampleLengthsTest, ADataSetOfALengthHasTheIndicesOfAllSamples) {
  Write(3, 4, 3);
  Write(2, 2, 3);
  Write(2, 4, 3);
  const auto lengths = Read();
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  const std::vector<InputId> inputs = {InputId(0), InputId(2)};
  const auto data = Dataset::Open(shorter_, inputs, path(), *lengths, 1);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->samples(), 7);
  EXPECT_EQ(data->SampleBytes(InputId(0)), 8);
  float x[4];
  ASSERT_TRUE(
      data->Gather(InputId(0), std::vector<int64_t>{4, 3}, reinterpret_cast<std::byte*>(x)).ok());
  EXPECT_THAT(x, ElementsAre(102, 103, 100, 101));
  int64_t target = 0;
  const auto longer = Dataset::Open(longer_, inputs, path(), *lengths, 0);
  ASSERT_TRUE(longer.ok()) << longer.status();
  ASSERT_TRUE(
      longer->Gather(InputId(2), std::vector<int64_t>{6}, reinterpret_cast<std::byte*>(&target))
          .ok());
  EXPECT_EQ(target, 6);
  // Without the lengths it is a data set of samples of one shape.
  EXPECT_THAT(std::string(Dataset::Open(longer_, inputs, path()).status().message()),
              HasSubstr("part-1.safetensors: tensor \"x\" is float32[2, 2], the graph wants "
                        "float32[samples, 4]"));
}

TEST_F(SampleLengthsTest, OneGraphHasSamplesOfOneLength) {
  Write(3, 4, 3);
  const Graph* graphs[] = {&longer_};
  const auto lengths = SampleLengths::Read(graphs, path());
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_THAT(lengths->runs(), ElementsAre(LengthRun{0, 3, 0}));
}

TEST_F(SampleLengthsTest, RefusesWhatFitsNoGraph) {
  Write(3, 4, 3);
  Write(3, 7, 3);
  const auto other = Read();
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("part-1.safetensors: tensor \"x\" is float32[3, 7], the graph wants "
                        "float32[samples, 2] or float32[samples, 4]"));
}

TEST_F(SampleLengthsTest, RefusesInputsOfDifferentLengths) {
  Write(3, 4, 3);
  Write(2, 4, 1);
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("not of one length in sample 3"));
}

TEST_F(SampleLengthsTest, RefusesDataWithoutTheInputsThatTellTheLength) {
  const std::vector<int64_t> target(3);
  ASSERT_TRUE(WriteSafetensors(directory_.File("part-0.safetensors"),
                               {View("target", DType::kInt64, {3}, target)})
                  .ok());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagewright
