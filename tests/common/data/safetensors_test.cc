#include "common/data/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>

#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;

std::string OpenError(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  EXPECT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  return std::string(file.status().message());
}

TEST(Safetensors, ReadsWhatPyTorchWrites) {
  // As safetensors.torch.save_file writes it: metadata, unsorted names, an unaligned scalar.
  const TempDirectory directory;
  const std::string path = directory.File("file.safetensors");
  WriteRaw(
      path,
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BOOL","shape":[3],"data_offsets":[4,7]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("none":{"dtype":"I64","shape":[0,5],"data_offsets":[7,7]}})",
      7);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  ASSERT_EQ(file->tensors().size(), 3u);
  const TensorView* a = file->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_TRUE(a->shape.empty());
  EXPECT_EQ(a->data.size(), 4u);
  EXPECT_EQ(file->Find("b")->dtype, DType::kBool);
  EXPECT_EQ(file->Find("none")->data.size(), 0u);
  EXPECT_EQ(file->Find("c"), nullptr);
}

TEST(Safetensors, MissingFilesAndDirectoriesAreNamed) {
  const TempDirectory directory;
  EXPECT_EQ(SafetensorsFile::Open(directory.File("x")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError(directory.File("")), HasSubstr("not a regular file"));
}

TEST(Safetensors, AFileThatBecomesShorterIsAnErrorAndNoSignal) {
  const TempDirectory directory;
  const std::string path = directory.File("weights.safetensors");
  const size_t page = 4096, entries = 4 * page;
  std::vector<float> a(entries), b(entries);
  std::iota(a.begin(), a.end(), 0.0f);
  ASSERT_TRUE(WriteSafetensors(path, {View("a", DType::kFloat32, {4 * 4096}, a),
                                      View("b", DType::kFloat32, {4 * 4096}, b)})
                  .ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const size_t size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 2 * page);
  std::vector<float> read(entries);
  const auto out = std::as_writable_bytes(std::span(read));
  EXPECT_TRUE(ReadTensor(*file->Find("a"), out).ok());
  EXPECT_EQ(read, a);
  const absl::Status status = ReadTensor(*file->Find("b"), out);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(std::to_string(size) + " bytes when it was opened"));
  // Nor where the tensors are copied into another file.
  const absl::Status copied = WriteSafetensors(directory.File("copy"), file->tensors());
  EXPECT_EQ(copied.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(copied.message()), HasSubstr("has become shorter"));
  EXPECT_EQ(directory.Names(), std::vector<std::string>{"weights.safetensors"});
}

TEST(Safetensors, TensorsInMemoryAreReadLikeThoseInFiles) {
  const std::vector<float> values = {1, 2, 3};
  std::vector<float> read(3);
  ASSERT_TRUE(
      ReadTensor(View("w", DType::kFloat32, {3}, values), std::as_writable_bytes(std::span(read)))
          .ok());
  EXPECT_EQ(read, values);
}

struct Corruption {
  const char* header;
  size_t data_bytes;
  const char* message;
};

class Corrupt : public ::testing::TestWithParam<Corruption> {};

TEST_P(Corrupt, IsOneClearError) {
  const TempDirectory directory;
  const std::string path = directory.File("corrupt.safetensors");
  WriteRaw(path, GetParam().header, GetParam().data_bytes);
  EXPECT_THAT(OpenError(path), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, Corrupt,
    ::testing::Values(
        Corruption{"{", 0, "the header is not a JSON object"},
        Corruption{"[]", 0, "the header is not a JSON object"},
        Corruption{R"({"__metadata__":3})", 0, "__metadata__ is not an object"},
        Corruption{R"({"__metadata__":{"a":3}})", 0, "__metadata__ \"a\" is not a string"},
        Corruption{R"({"w":7})", 0, "tensor \"w\": dtype, shape or data_offsets is missing"},
        Corruption{R"({"w":{"dtype":"F32","shape":[1]}})", 4, "tensor \"w\": dtype, shape or"},
        Corruption{R"({"w":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", 1,
                   "tensor \"w\": type \"F8\" is not supported"},
        Corruption{R"({"w":{"dtype":32,"shape":[1],"data_offsets":[0,1]}})", 1,
                   "tensor \"w\": dtype is not a string"},
        Corruption{R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
                   "tensor \"w\": shape is not a list of sizes"},
        Corruption{R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
                   "tensor \"w\": its bytes [4, 0) lie outside the 4 bytes"},
        Corruption{R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
                   "tensor \"w\": its bytes [0, 8) lie outside the 7 bytes"},
        Corruption{R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                   "tensor \"w\": float32[2] needs 8 bytes, the header gives it 4"},
        Corruption{R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})",
                   4, "tensor \"w\": the size of its shape overflows"},
        Corruption{R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                   6, "tensor \"w\" overlaps the one before"},
        Corruption{R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("w":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})",
                   9, "tensor \"w\" follows a gap"},
        Corruption{R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5,
                   "the tensors end at byte 4 of 5"}));

// Cut anywhere or changed anywhere, a file is refused or still consistent; nothing crashes.
TEST(Safetensors, NoDamageCrashesTheReader) {
  const TempDirectory directory;
  const std::string path = directory.File("file.safetensors");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteSafetensors(path, {View("weight", DType::kFloat32, {2, 3}, values),
                                      View("bias", DType::kFloat32, {6}, values)})
                  .ok());
  const std::string whole = ReadBytes(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    WriteBytes(path, whole.substr(0, length));
    OpenError(path);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    for (int k = 0; k < 3; ++k) damaged[random() % whole.size()] = static_cast<char>(random());
    WriteBytes(path, damaged);
    const auto file = SafetensorsFile::Open(path);
    if (!file.ok()) continue;
    for (const TensorView& tensor : file->tensors()) {
      int64_t elements = 1;
      for (int64_t dim : tensor.shape) elements *= dim;
      EXPECT_EQ(static_cast<size_t>(elements * SizeOf(tensor.dtype)), tensor.data.size());
    }
  }
}

}  // namespace
}  // namespace stagewright
