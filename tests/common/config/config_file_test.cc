#include "common/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto file = ParseConfig("c.yaml", text, /*with_contexts=*/true);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(file.status().message());
}

TEST(ConfigFile, HasEntriesInOrderWithLines) {
  const auto file = ParseConfig("c.yaml",
                                "# A comment.\n"
                                "listen: 0.0.0.0:7070\n"
                                "quota: [a=1, b=2]\n"
                                "metrics-listen: \"\"\n"
                                "contexts:\n"
                                "  lab:\n"
                                "    planner-address: lab:7070\n",
                                /*with_contexts=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->entries.size(), 3u);
  EXPECT_EQ(file->entries[0].key, "listen");
  EXPECT_THAT(file->entries[0].values, testing::ElementsAre("0.0.0.0:7070"));
  EXPECT_EQ(file->entries[0].line, 2);
  EXPECT_TRUE(file->entries[1].list);
  EXPECT_THAT(file->entries[1].values, testing::ElementsAre("a=1", "b=2"));
  EXPECT_THAT(file->entries[2].values, testing::ElementsAre(""));
  ASSERT_EQ(file->contexts.size(), 1u);
  EXPECT_EQ(file->contexts[0].name, "lab");
  EXPECT_EQ(file->contexts[0].entries[0].line, 7);
}

TEST(ConfigFile, MayBeEmpty) {
  for (const char* text : {"", "# nothing\n", "---\n"}) {
    const auto file = ParseConfig("c.yaml", text, /*with_contexts=*/true);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->entries.empty());
  }
}

TEST(ConfigFile, NamesFileLineAndKeyOfWhatIsWrong) {
  EXPECT_EQ(ErrorOf("listen: a\nstate: b\nlisten: c\n"),
            "c.yaml:3: \"listen\" is given twice, first in line 1");
  EXPECT_EQ(ErrorOf("listen:\n  host: a\n"), "c.yaml:1: \"listen\" is one value, and no map");
  EXPECT_THAT(ErrorOf("\nlisten:\n"), testing::HasSubstr("c.yaml:2: \"listen\" has no value"));
  EXPECT_EQ(ErrorOf("- a\n"), "c.yaml:1: the file is a map of KEY: VALUE");
  EXPECT_EQ(ErrorOf("quota: [[a]]\n"), "c.yaml:1: \"quota\" is a list of words");
  EXPECT_THAT(ErrorOf("a: 1\nb: [1, 2\n"), testing::HasSubstr("c.yaml:"));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2\n"), testing::HasSubstr("a second document"));
  EXPECT_EQ(ErrorOf("contexts:\n  lab: 3\n"),
            "c.yaml:2: the context \"lab\" is a map of KEY: VALUE");
  EXPECT_EQ(ErrorOf("contexts:\n  a: {}\n  a: {}\n"),
            "c.yaml:3: \"a\" is given twice, first in line 2");
  EXPECT_EQ(ReadConfigFile("/nowhere/c.yaml", true).status().code(), absl::StatusCode::kNotFound);
}

TEST(ConfigFile, ManyBracketsAreAnError) {
  EXPECT_THAT(ErrorOf("a: " + std::string(100'000, '[')), testing::HasSubstr("c.yaml:1: "));
}

TEST(WithEntry, ReplacesOneLineAndKeepsTheRest) {
  const std::string text = "# mine\ncontext: home  # now\ncontexts:\n  lab: {a: 1}\n";
  const auto changed = WithEntry("c.yaml", text, "context", "lab");
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(*changed, "# mine\ncontext: \"lab\"\ncontexts:\n  lab: {a: 1}\n");
}

TEST(WithEntry, AddsALineThatIsNotThere) {
  EXPECT_EQ(*WithEntry("c.yaml", "a: 1\n", "context", "lab"), "context: \"lab\"\na: 1\n");
  EXPECT_EQ(*WithEntry("c.yaml", "---\na: 1\n", "context", "lab"), "---\ncontext: \"lab\"\na: 1\n");
}

TEST(WithEntry, RefusesWhatItWouldBreak) {
  EXPECT_FALSE(WithEntry("c.yaml", "context:\n  home\na: 1\n", "context", "lab").ok());
  EXPECT_FALSE(WithEntry("c.yaml", "{context: home, a: 1}\n", "context", "lab").ok());
}

}  // namespace
}  // namespace stagewright
