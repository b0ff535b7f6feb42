#include "common/data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/data/npy_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NpyTest : public ::testing::Test {
 protected:
  std::string Error(const std::string& bytes) {
    WriteBytes(path_, bytes);
    const auto file = NpyFile::Open(path_);
    EXPECT_FALSE(file.ok());
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_));
    return std::string(file.status().message());
  }
  const TempDirectory directory_;
  const std::string path_ = directory_.File("a.npy");
};

TEST_F(NpyTest, ReadsEveryVersionAndType) {
  for (int version : {1, 2, 3}) {
    WriteNpy<float>(path_, "<f4", "(3, 2)", {0, 1, 2, 3, 4, 5}, version);
    const auto file = NpyFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->array.dtype, DType::kFloat32);
    EXPECT_THAT(file->array.shape, ElementsAre(3, 2));
    EXPECT_THAT(Values<float>(file->array), ElementsAre(0, 1, 2, 3, 4, 5));
  }
  const std::pair<const char*, DType> types[] = {{"<f8", DType::kFloat64}, {"<f2", DType::kFloat16},
                                                 {"<i8", DType::kInt64},   {"<i4", DType::kInt32},
                                                 {"<i2", DType::kInt16},   {"|i1", DType::kInt8},
                                                 {"|u1", DType::kUInt8},   {"|b1", DType::kBool}};
  for (const auto& [name, type] : types) {
    WriteBytes(path_, NpyBytes(NpyHeader(name, "(2,)"),
                               std::string(2 * static_cast<size_t>(SizeOf(type)), '\1')));
    const auto file = NpyFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->array.dtype, type);
    EXPECT_THAT(file->array.shape, ElementsAre(2));
  }
}

TEST_F(NpyTest, SaysWhatIsWrong) {
  EXPECT_THAT(Error("no numbers"), HasSubstr("not an .npy file"));
  EXPECT_THAT(Error(""), HasSubstr("not an .npy file"));
  EXPECT_THAT(Error(NpyBytes(NpyHeader("<f4", "(1,)"), "1234", 9)), HasSubstr("version 9"));
  const std::string whole = NpyBytes(NpyHeader("<f4", "(2,)"), "12345678");
  EXPECT_THAT(Error(whole.substr(0, 40)), HasSubstr("truncated: its header is longer"));
  EXPECT_THAT(Error(whole.substr(0, whole.size() - 1)),
              AllOf(HasSubstr("float32[2] needs 8 bytes, the file has 7"), HasSubstr("truncated")));
  EXPECT_THAT(Error(whole + "9"), HasSubstr("needs 8 bytes, the file has 9"));
  EXPECT_THAT(Error(NpyBytes(NpyHeader("<f4", "(2,)", true), "12345678")),
              HasSubstr("Fortran order"));
  EXPECT_THAT(Error(NpyBytes(NpyHeader(">f4", "(2,)"), "12345678")), HasSubstr("big-endian"));
  EXPECT_THAT(Error(NpyBytes(NpyHeader("<c8", "(1,)"), "12345678")), HasSubstr("\"<c8\""));
  EXPECT_THAT(Error(NpyBytes(NpyHeader("|O", "(1,)"), "12345678")), HasSubstr("not supported"));
  EXPECT_THAT(
      Error(NpyBytes("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234")),
      HasSubstr("arrays of records"));
  EXPECT_THAT(Error(NpyBytes(NpyHeader("<f4", "(-2,)"), "12345678")), HasSubstr("tuple of sizes"));
  EXPECT_THAT(Error(NpyBytes(NpyHeader("<f4", "(4611686018427387904, 8)"), "")),
              HasSubstr("overflows"));
  EXPECT_THAT(Error(NpyBytes("{}", "")), HasSubstr("descr"));
}

// Whatever is cut off or changed in the header, the file is read or refused.
TEST_F(NpyTest, AnyChangedByteIsRefusedOrRead) {
  const std::string whole = NpyBytes(NpyHeader("<i8", "(1, 2)"), std::string(16, '\2'));
  for (size_t i = 0; i < whole.size() - 16; ++i) {
    for (const char value : {'\0', '\xff', '(', '\''}) {
      std::string changed = whole;
      changed[i] = value;
      WriteBytes(path_, changed);
      const auto file = NpyFile::Open(path_);
      if (!file.ok()) {
        EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_));
      }
    }
    WriteBytes(path_, whole.substr(0, i));
    EXPECT_FALSE(NpyFile::Open(path_).ok());
  }
}

TEST_F(NpyTest, NamesAFileThatIsNotThere) {
  const auto file = NpyFile::Open(directory_.File("none.npy"));
  EXPECT_TRUE(absl::IsNotFound(file.status()));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("none.npy"));
}

}  // namespace
}  // namespace stagewright
