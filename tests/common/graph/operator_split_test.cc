#include "common/graph/operator_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(OperatorSplitTest, TextsRoundTrip) {
  for (const char* text : {"top=2", "a.b=8,c=3", "x=y=4"}) {
    const auto splits = ParseOperatorSplits(text);
    ASSERT_TRUE(splits.ok()) << splits.status();
    EXPECT_EQ(OperatorSplitsText(*splits), text);
  }
  EXPECT_EQ(ParseOperatorSplits("x=y=4")->front(), (OperatorSplit{"x=y", 4}));
}

TEST(OperatorSplitTest, NamesWhatIsWrong) {
  for (const char* text : {"", "top", "top=", "=4", "top=1", "top=-2", "top=2.5", "a=2,,b=2"})
    EXPECT_THAT(ParseOperatorSplits(text).status().message(), HasSubstr("is not NAME=PARTS"))
        << text;
  EXPECT_THAT(ParseOperatorSplits("a=2,b=2,a=4").status().message(),
              HasSubstr("\"a\" is given twice"));
}

}  // namespace
}  // namespace stagewright
