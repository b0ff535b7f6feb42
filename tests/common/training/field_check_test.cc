#include "common/training/field_check.h"

#include <gtest/gtest.h>

#include <limits>

namespace stagewright {
namespace {

TEST(FieldCheck, NamesTheFieldAndWhatIsThere) {
  const absl::Status status = WrongField("spec.", "steps", "must be ", 3);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), "spec.steps must be 3");
  EXPECT_EQ(CheckPositive("", "rate", -0.5).message(), "rate must be positive and finite, is -0.5");
  EXPECT_EQ(CheckNotNegative("", "every", int64_t{-2}).message(),
            "every must not be negative, is -2");
}

TEST(FieldCheck, NumbersThatAreNoneAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {nan, infinity, -infinity, -1.0}) {
    EXPECT_FALSE(CheckPositive("", "x", value).ok()) << value;
    EXPECT_FALSE(CheckNotNegative("", "x", value).ok()) << value;
  }
  EXPECT_FALSE(CheckPositive("", "x", 0).ok());
  EXPECT_TRUE(CheckNotNegative("", "x", 0.0).ok());
  EXPECT_TRUE(CheckPositive("", "x", 1e-300).ok());
}

}  // namespace
}  // namespace stagewright
