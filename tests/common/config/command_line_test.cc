#include "common/config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <streambuf>
#include <vector>

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::StartsWith;

// Takes nothing, as a device that is full.
class Full : public std::streambuf {};

class CommandLineTest : public ::testing::Test {
 protected:
  // What the program ends with; what it says is in said_.
  std::optional<int> Parse(std::vector<std::string> words) {
    words.insert(words.begin(), "/usr/bin/program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    CLI::App app("does things");
    app.add_option("--count", count_);
    CLI::App* run = app.add_subcommand("run", "runs");
    run->add_flag("--fast");
    Settings settings(app, {"PROGRAM_"});
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const auto ends = ParseCommandLine(
        app, settings, {"program", static_cast<int>(argv.size()), argv.data(), unknown_});
    said_ = ::testing::internal::GetCapturedStderr();
    printed_ = ::testing::internal::GetCapturedStdout();
    return ends;
  }

  int64_t count_ = 0;
  std::function<std::string(const CLI::App&, const CLI::App&)> unknown_;
  std::string said_, printed_;
};

TEST_F(CommandLineTest, GivesFlagsWhatItSays) {
  EXPECT_EQ(Parse({"--count", "3", "run", "--fast"}), std::nullopt);
  EXPECT_EQ(count_, 3);
  EXPECT_EQ(said_, "");
}

TEST_F(CommandLineTest, WrongUsageIsOneLineThatSaysWhereHelpIs) {
  EXPECT_THAT(Parse({"--bogus"}), Optional(kWrongUsage));
  EXPECT_EQ(said_, "program: The following argument was not expected: --bogus (program --help)\n");
  EXPECT_THAT(Parse({"run", "--bogus"}), Optional(kWrongUsage));
  EXPECT_THAT(said_, HasSubstr("--bogus (program run --help)\n"));
  EXPECT_THAT(Parse({"--count", "99999999999999999999"}), Optional(kWrongUsage));
  EXPECT_THAT(said_, StartsWith("program: --count: "));
  EXPECT_EQ(printed_, "");
}

TEST_F(CommandLineTest, AProgramMayKnowBetterWhatIsWrong) {
  unknown_ = [](const CLI::App& app, const CLI::App& chosen) {
    return app.remaining(/*recurse=*/true).size() == 1 ? "not of " + chosen.get_name() : "";
  };
  EXPECT_THAT(Parse({"run", "--bogus"}), Optional(kWrongUsage));
  EXPECT_EQ(said_, "program: not of run (program run --help)\n");
}

TEST_F(CommandLineTest, WordsAreUtf8) {
  EXPECT_THAT(Parse({"run", "a\xff"}), Optional(kWrongUsage));
  EXPECT_EQ(said_, "program: word 2 of the command line is no UTF-8: a\\xff\n");
}

TEST_F(CommandLineTest, HelpEndsTheProgramWell) {
  EXPECT_THAT(Parse({"--help"}), Optional(0));
  EXPECT_THAT(printed_, HasSubstr("does things"));
}

TEST(AfterOutput, IsAnErrorWhereItIsNotAllThere) {
  EXPECT_EQ(AfterOutput("program", 0), 0);
  EXPECT_EQ(AfterOutput("program", 5), 5);
  Full full;
  std::streambuf* const before = std::cout.rdbuf(&full);
  ::testing::internal::CaptureStderr();
  for (const auto& [status, then] : {std::pair(0, 1), std::pair(5, 5)}) {
    std::cout << "lost";
    EXPECT_EQ(AfterOutput("program", status), then);
  }
  std::cout.rdbuf(before);
  std::cout.clear();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              StartsWith("program: cannot write to standard output: "));
}

}  // namespace
}  // namespace stagewright
