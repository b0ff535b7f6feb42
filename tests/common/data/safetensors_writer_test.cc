#include "common/data/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SafetensorsWriter, RoundTripsEveryType) {
  const TempDirectory directory;
  const std::string path = directory.File("file.safetensors");
  const std::vector<double> bytes = {1.5, -2, 3, 4};
  std::vector<TensorView> tensors;
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    TensorView view = View("t" + std::to_string(i), dtype, {2, 2}, bytes);
    view.data = view.data.first(static_cast<size_t>(4 * SizeOf(dtype)));
    tensors.push_back(view);
  }
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"step", "7"}}).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("step"), "7");
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (const TensorView& tensor : tensors) {
    const TensorView* read = file->Find(tensor.name);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_TRUE(
        std::equal(read->data.begin(), read->data.end(), tensor.data.begin(), tensor.data.end()));
  }
  EXPECT_THAT(directory.Names(), ElementsAre("file.safetensors"));
}

TEST(SafetensorsWriter, ReplacesTheOldFileWholeOrNotAtAll) {
  const TempDirectory directory;
  const std::string path = directory.File("file.safetensors");
  const std::vector<float> one = {1}, two = {2};
  ASSERT_TRUE(WriteSafetensors(path, {View("w", DType::kFloat32, {1}, one)}).ok());
  // A reader that has the old file open keeps it.
  const auto old = SafetensorsFile::Open(path);
  EXPECT_FALSE(WriteSafetensors(path, {View("w", DType::kFloat32, {2}, two)}).ok());
  EXPECT_THAT(Values<float>(*SafetensorsFile::Open(path)->Find("w")), ElementsAre(1));
  ASSERT_TRUE(WriteSafetensors(path, {View("w", DType::kFloat32, {1}, two)}).ok());
  EXPECT_THAT(Values<float>(*SafetensorsFile::Open(path)->Find("w")), ElementsAre(2));
  EXPECT_THAT(Values<float>(*old->Find("w")), ElementsAre(1));
}

TEST(SafetensorsWriter, RefusesBadTensorsAndPlaces) {
  const TempDirectory directory;
  const std::vector<float> one = {1};
  const TensorView good = View("w", DType::kFloat32, {1}, one);
  absl::Status status = WriteSafetensors(directory.File("a"), {good, good});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor \"w\": the name is empty, reserved"));
  status = WriteSafetensors(directory.File("a"), {View("w", DType::kFloat64, {1}, one)});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor \"w\": float64[1] needs 8 bytes, not 4"));
  status = WriteSafetensors(directory.File("none/a"), {good});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
  // Renaming over a directory fails after the bytes were written.
  std::filesystem::create_directory(directory.File("b"));
  EXPECT_FALSE(WriteSafetensors(directory.File("b"), {good}).ok());
  EXPECT_THAT(directory.Names(), ElementsAre("b"));
}

}  // namespace
}  // namespace stagewright
