#include "common/config/config_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace stagewright {
namespace {

using testing::HasSubstr;

struct Result {
  int exit_code = 0;
  std::string out, err;
};

// A program with an address and a store is asked about its configuration.
Result Ask(std::vector<const char*> words) {
  std::string listen = "127.0.0.1:7070", store;
  CLI::App app;
  app.option_defaults()->always_capture_default();
  app.add_option("--listen", listen, "HOST:PORT | nothing");
  app.add_option("--store", store, "a place");
  Settings settings(app, {"TEST_"});
  const ConfigCommand config = AddConfigCommand(app, settings, "program");
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

TEST(ConfigCommand, ShowsWhatCanBeReadAgain) {
  const Result shown = Ask({"--store", "etcd://me:secret@host/a", "config", "show"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, HasSubstr("listen: 127.0.0.1:7070"));
  EXPECT_THAT(shown.out, HasSubstr("  # default\n"));
  EXPECT_THAT(shown.out, HasSubstr("  # flag --store\n"));
  EXPECT_THAT(shown.out, Not(HasSubstr("secret")));
  const auto file = ParseConfig("shown", shown.out, /*with_contexts=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->entries.size(), 2u);
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
            "| `store` | `TEST_STORE` | | a place |\n");
}

}  // namespace
}  // namespace stagewright
