#include "common/data/input_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "tests/common/data/safetensors_files.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using testing::TempDirectory;

// An input of two entries along the first dimension for each sample.
Input TwoRows(const std::string& name) {
  return {name, {DType::kFloat32, {{2, 0}, {0, 3}}}, InputRole::kFeature};
}

class InputFilesTest : public ::testing::Test {
 protected:
  InputFilesTest() {
    const std::vector<float> ones(24, 1.0f);
    const auto tensor = [&ones](const char* name, int64_t rows, int64_t columns) {
      return TensorView{name,
                        DType::kFloat32,
                        {rows, columns},
                        std::as_bytes(std::span(ones).first(static_cast<size_t>(rows * columns)))};
    };
    EXPECT_EQ(WriteSafetensors(path_, {tensor("x", 4, 3), tensor("y", 6, 4), tensor("odd", 3, 3),
                                       tensor("none", 0, 3)}),
              absl::OkStatus());
  }

  absl::Status Refusal(const Input& input) { return files_.Open(path_, input).status(); }

  const TempDirectory directory_;
  const std::string path_ = directory_.File("data.safetensors");
  InputFiles files_;
};

TEST_F(InputFilesTest, CountSamplesAndOpenAFileOnce) {
  const InputFiles::Found x = files_.Open(path_, TwoRows("x")).value();
  EXPECT_EQ(x.samples, 2);
  EXPECT_TRUE(HasShapeOf(x.tensor, TwoRows("x").meta));
  // Samples of another length are for whoever knows lengths to refuse.
  const InputFiles::Found y = files_.Open(path_, TwoRows("y")).value();
  EXPECT_EQ(y.samples, 3);
  EXPECT_FALSE(HasShapeOf(y.tensor, TwoRows("y").meta));
  EXPECT_EQ(x.file, y.file);
  EXPECT_EQ(files_.TakeMappings().size(), 1u);
}

TEST_F(InputFilesTest, RefuseWhatHoldsNoSamplesOfTheInput) {
  EXPECT_EQ(Refusal(TwoRows("z")).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Refusal(TwoRows("odd")).message()),
              HasSubstr("the graph wants float32[2 * samples, 3]"));
  EXPECT_THAT(std::string(Refusal(TwoRows("none")).message()), HasSubstr("holds no sample"));
  Input integers = TwoRows("x");
  integers.meta.dtype = DType::kInt64;
  EXPECT_EQ(Refusal(integers).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(InputFilesTest, InputsOfAFileHaveAsManySamples) {
  EXPECT_EQ(files_.CheckSamples("a", "x", 4), absl::OkStatus());
  EXPECT_EQ(files_.CheckSamples("b", "y", 5), absl::OkStatus());
  EXPECT_EQ(files_.CheckSamples("a", "z", 4), absl::OkStatus());
  EXPECT_EQ(std::string(files_.CheckSamples("a", "y", 5).message()),
            "a: tensor \"y\" has 5 samples, \"x\" has 4");
}

TEST(NameInFile, IsThatOfAnArrayOrATensor) {
  EXPECT_EQ(NameInFile("d/x.npy", "x"), "d/x.npy: the array for \"x\"");
  EXPECT_EQ(NameInFile("d.safetensors", "x"), "d.safetensors: tensor \"x\"");
}

}  // namespace
}  // namespace stagewright
