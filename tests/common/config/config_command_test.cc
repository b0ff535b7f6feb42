#include "common/config/config_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <regex>

namespace stagewright {
namespace {

using testing::HasSubstr;

struct Result {
  int exit_code = 0;
  std::string out, err;
};

// A program with an address, a store or a state, and quotas is asked about its configuration.
Result Ask(std::vector<const char*> words) {
  std::string listen = "127.0.0.1:7070", store, state = "kept.db";
  std::vector<std::string> quotas;
  CLI::App app;
  app.option_defaults()->always_capture_default();
  app.add_option("--listen", listen, "HOST:PORT | nothing");
  app.add_option("--store", store, "a place");
  app.add_option("--state", state, "a file")->excludes("--store");
  app.add_option("--quota", quotas, "NAME=COUNT")->check([](const std::string& quota) {
    return quota.find('=') == std::string::npos ? "no quota" : "";
  });
  Settings settings(app, {"TEST_"});
  const ConfigCommand config = AddConfigCommand(app, settings, "program", [&] {
    return store == state ? absl::InvalidArgumentError("--store and --state\nare one")
                          : absl::OkStatus();
  });
  words.insert(words.begin(), "program");
  settings.Load(static_cast<int>(words.size()), words.data());
  app.parse(static_cast<int>(words.size()), words.data());
  EXPECT_TRUE(config.chosen());
  Result result;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  result.exit_code = config.run();
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

std::string WithoutOrigins(const std::string& shown) {
  return std::regex_replace(shown, std::regex(" +# .*"), "");
}

TEST(ConfigCommand, ShowsWhatCanBeReadAgain) {
  const Result shown = Ask({"--store", "etcd://me:secret@host/a", "config", "show"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, HasSubstr("listen: 127.0.0.1:7070"));
  EXPECT_THAT(shown.out, HasSubstr("  # default\n"));
  EXPECT_THAT(shown.out, HasSubstr("  # flag --store\n"));
  EXPECT_THAT(shown.out, Not(HasSubstr("secret")));
  const auto file = ParseConfig("shown", shown.out, /*with_contexts=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->entries.size(), 4u);
}

// What a program is told, written down, tells it the same.
TEST(ConfigCommand, WhatItShowsIsAFileThatIsGood) {
  const std::string path = testing::TempDir() + "/config_command_shown.yaml";
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{}, {"--quota", "a=1", "--quota", "b=2"}, {"--store", "a-place"}}) {
    std::vector<const char*> show = words;
    show.insert(show.end(), {"config", "show"});
    const std::string shown = Ask(show).out;
    std::ofstream(path) << shown;
    const Result again = Ask({"--config", path.c_str(), "config", "show"});
    EXPECT_EQ(again.exit_code, 0) << shown << again.err;
    EXPECT_EQ(WithoutOrigins(again.out), WithoutOrigins(shown));
  }
}

TEST(ConfigCommand, ValidatesWithoutDoingAnything) {
  EXPECT_EQ(Ask({"config", "validate"}).exit_code, 0);
  const std::string path = testing::TempDir() + "/config_command_test.yaml";
  std::ofstream(path) << "lissen: a\nstores: b\n";
  const Result wrong = Ask({"--config", path.c_str(), "config", "validate"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("program: " + path + ":1: \"lissen\""));
  EXPECT_THAT(wrong.err, HasSubstr("program: " + path + ":2: \"stores\""));
}

TEST(ConfigCommand, ValidatesSettingsBesideEachOther) {
  const std::string path = testing::TempDir() + "/config_command_test.yaml";
  std::ofstream(path) << "store: kept.db\n";
  for (const char* command : {"validate", "show"}) {
    const Result wrong = Ask({"--config", path.c_str(), "config", command});
    EXPECT_EQ(wrong.exit_code, 1) << command;
    EXPECT_EQ(wrong.err, "program: --store and --state?are one\n");
  }
  std::ofstream(path) << "store: kept.db\nquota: many\n";
  EXPECT_THAT(Ask({"--config", path.c_str(), "config", "validate"}).err, Not(HasSubstr("are one")))
      << "a setting that is wrong by itself says nothing of others";
}

TEST(ConfigCommand, WarnsOfWhatMayBeWrong) {
  setenv("TEST_LISTNE", "0.0.0.0:7070", 1);
  const Result warned = Ask({"config", "validate"});
  unsetenv("TEST_LISTNE");
  EXPECT_EQ(warned.exit_code, 0);
  EXPECT_EQ(
      warned.err,
      "program: warning: the variable TEST_LISTNE is no setting; did you mean TEST_LISTEN?\n");
}

TEST(ConfigCommand, PrintsATable) {
  EXPECT_EQ(Ask({"config", "reference"}).out,
            "| setting | variable | default | |\n"
            "|---|---|---|---|\n"
            "| `listen` | `TEST_LISTEN` | `127.0.0.1:7070` | HOST:PORT \\| nothing |\n"
            "| `store` | `TEST_STORE` | | a place |\n"
            "| `state` | `TEST_STATE` | `kept.db` | a file |\n"
            "| `quota` | `TEST_QUOTA` | | NAME=COUNT |\n");
}

}  // namespace
}  // namespace stagewright
