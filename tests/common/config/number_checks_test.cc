#include "common/config/number_checks.h"

#include <gtest/gtest.h>

#include <string>

namespace stagewright {
namespace {

// What the check says of a word; nothing if it takes it.
std::string Refusal(const CLI::Validator& check, std::string word) { return check(word); }

TEST(Positive, TakesWholeNumbersFromOne) {
  for (const char* word : {"1", "64", "9000000000"})
    EXPECT_EQ(Refusal(Positive(), word), "") << word;
  for (const char* word : {"0", "-1", "1.5", "", "two", "99999999999999999999"})
    EXPECT_NE(Refusal(Positive(), word), "") << word;
}

TEST(Seconds, TakesWhatCanBeAddedToATime) {
  for (const char* word : {"0.001", "60", "315360000"})
    EXPECT_EQ(Refusal(Seconds(), word), "") << word;
  for (const char* word : {"0", "-1", "nan", "inf", "1e300", "soon"})
    EXPECT_NE(Refusal(Seconds(), word), "") << word;
}

TEST(Minutes, AreBoundedAsSecondsAre) {
  for (const char* word : {"0.01", "5", "5256000"}) EXPECT_EQ(Refusal(Minutes(), word), "") << word;
  for (const char* word : {"0", "-1", "nan", "inf", "5256001"})
    EXPECT_NE(Refusal(Minutes(), word), "") << word;
}

TEST(Within, TakesBothEndsAndNothingElse) {
  for (const char* word : {"0.1", "5", "86400"})
    EXPECT_EQ(Refusal(Within(0.1, 86400), word), "") << word;
  for (const char* word : {"0.09", "86401", "-1", "inf", "", "soon"})
    EXPECT_NE(Refusal(Within(0.1, 86400), word), "") << word;
  EXPECT_EQ(Refusal(Within(0.1, 86400), "nan"), "\"nan\" is not a number from 0.1 to 86400");
}

}  // namespace
}  // namespace stagewright
