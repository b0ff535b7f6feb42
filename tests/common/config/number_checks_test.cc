#include "common/config/number_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

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

// What a command line of one option says of a word, whose numbers end up in `number`.
template <typename Whole>
std::string Said(const std::string& word, Whole& number) {
  CLI::App app;
  CLI::App* const command = app.add_subcommand("train", "");
  command->add_option("--number", number);
  RefuseWhatDoesNotFit(app);
  try {
    app.parse("train --number " + word);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

TEST(RefuseWhatDoesNotFit, IsSaidInsteadOfTheNearestNumber) {
  int64_t whole = 0;
  EXPECT_EQ(Said("-9223372036854775808", whole), "");
  EXPECT_EQ(whole, INT64_MIN);
  EXPECT_THAT(Said("9223372036854775808", whole), HasSubstr("\"9223372036854775808\" is not from"));
  EXPECT_NE(Said("1e3x", whole), "");
  uint64_t seed = 0;
  EXPECT_EQ(Said("18446744073709551615", seed), "");
  EXPECT_EQ(seed, UINT64_MAX);
  for (const char* word : {"18446744073709551616", "-1", "99999999999999999999999"})
    EXPECT_THAT(Said(word, seed), HasSubstr("is not from 0 to 18446744073709551615")) << word;
}

}  // namespace
}  // namespace stagewright
