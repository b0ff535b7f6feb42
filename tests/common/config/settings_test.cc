#include "common/config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace stagewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// A program with one flag of each kind.
struct Program {
  explicit Program(bool contexts = false, const std::string& file = "")
      : settings((AddFlags(), app), {"TEST_", file, contexts}) {}

  void AddFlags() {
    app.option_defaults()->always_capture_default();
    app.add_option("--listen", listen, "address");
    app.add_option("--threads", threads, "how many")->check(CLI::Range(1, 64));
    app.add_option("--quota", quotas, "NAME=COUNT");
    app.add_flag("--insecure", insecure, "in the clear");
    app.add_option("--state", state, "a file");
    app.add_option("--store", store, "a place")->excludes("--state");
  }

  // Parses; what is wrong with file and environment.
  std::vector<std::string> Run(std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    settings.Load(static_cast<int>(words.size()), words.data());
    app.parse(static_cast<int>(words.size()), words.data());
    return settings.Problems();
  }

  std::string OriginOf(const std::string& key) const {
    for (const Setting& setting : settings.List())
      if (setting.key == key) return setting.origin;
    return "no such setting";
  }

  CLI::App app;
  std::string listen = "loopback", state, store;
  int threads = 2;
  bool insecure = false;
  std::vector<std::string> quotas;
  Settings settings;
};

class SettingsTest : public testing::Test {
 protected:
  ~SettingsTest() override {
    for (const char* name :
         {"TEST_LISTEN", "TEST_THREADS", "TEST_INSECURE", "TEST_CONFIG", "TEST_CONTEXT",
          "TEST_STORE", "TEST_THREDS", "TEST_CONFIGG", "TEST_LISTN", "TEST_BUILD_FOLDER"})
      unsetenv(name);
  }

  std::string Write(const std::string& text) {
    std::string path = testing::TempDir() + "/settings_test.yaml";
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(SettingsTest, FlagsGoOverEnvironmentOverFileOverDefaults) {
  const std::string path = Write("listen: file\nthreads: 3\nstate: kept\n");
  setenv("TEST_LISTEN", "environment", 1);
  setenv("TEST_THREADS", "4", 1);
  Program program;
  EXPECT_THAT(program.Run({"--threads", "5", "--config", path.c_str()}), ElementsAre());
  EXPECT_EQ(program.threads, 5);
  EXPECT_EQ(program.listen, "environment");
  EXPECT_EQ(program.state, "kept");
  EXPECT_FALSE(program.insecure);
  EXPECT_EQ(program.OriginOf("threads"), "flag");
  EXPECT_EQ(program.OriginOf("listen"), "environment");
  EXPECT_EQ(program.OriginOf("state"), path + ":3");
  EXPECT_EQ(program.OriginOf("insecure"), "default");
}

TEST_F(SettingsTest, EveryKindOfFlagIsSetByAFile) {
  const std::string path = Write("listen: \"\"\nthreads: 3\nquota: [a=1, b=2]\ninsecure: true\n");
  setenv("TEST_CONFIG", path.c_str(), 1);
  Program program;
  EXPECT_THAT(program.Run({}), ElementsAre());
  EXPECT_EQ(program.listen, "");
  EXPECT_EQ(program.threads, 3);
  EXPECT_TRUE(program.insecure);
  EXPECT_THAT(program.quotas, ElementsAre("a=1", "b=2"));
}

TEST_F(SettingsTest, AListOfFlagsReplacesThatOfTheFile) {
  const std::string path = Write("quota: [a=1, b=2]\n");
  Program program;
  EXPECT_THAT(program.Run({"--config", path.c_str(), "--quota", "c=3"}), ElementsAre());
  EXPECT_THAT(program.quotas, ElementsAre("c=3"));
}

TEST_F(SettingsTest, SaysWhatIsWrongWithFileLineAndKey) {
  const std::string path = Write("lisen: a\nthreads: many\ninsecure: perhaps\nlisten: [a, b]\n");
  setenv("TEST_THREADS", "100", 1);
  Program program;
  EXPECT_THAT(program.Run({"--config", path.c_str()}),
              ElementsAre(path + ":1: \"lisen\" is no setting; did you mean \"listen\"?",
                          path + ":2: threads: \"many\": Value many not in range 1 to 64",
                          path + ":3: insecure: \"perhaps\" is neither true nor false",
                          path + ":4: listen is one value, and no list",
                          "TEST_THREADS: threads: \"100\": Value 100 not in range 1 to 64"));
  EXPECT_EQ(program.settings.Check().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SettingsTest, AFileThatIsNamedMustBeThere) {
  Program named;
  EXPECT_THAT(named.Run({"--config", "/nowhere/c.yaml"}),
              ElementsAre(HasSubstr("/nowhere/c.yaml")));
  Program usual(false, "/nowhere/c.yaml");
  EXPECT_THAT(usual.Run({}), ElementsAre());
}

TEST_F(SettingsTest, SettingsThatExcludeEachOtherAreNamedWithTheirOrigins) {
  const std::string path = Write("state: a\n");
  setenv("TEST_STORE", "b", 1);
  Program program;
  EXPECT_THAT(program.Run({"--config", path.c_str()}),
              ElementsAre("state (" + path + ":1) and store (environment) exclude each other"));
}

TEST_F(SettingsTest, AContextGoesOverTheRestOfTheFile) {
  const std::string path = Write(
      "context: home\nlisten: all\ncontexts:\n  home: {listen: home}\n  lab: {listen: lab}\n");
  Program usual(/*contexts=*/true, path);
  EXPECT_THAT(usual.Run({}), ElementsAre());
  EXPECT_EQ(usual.listen, "home");
  setenv("TEST_CONTEXT", "lab", 1);
  Program environment(/*contexts=*/true, path);
  EXPECT_THAT(environment.Run({}), ElementsAre());
  EXPECT_EQ(environment.listen, "lab");
  Program flag(/*contexts=*/true, path);
  EXPECT_THAT(flag.Run({"--context", "hom"}),
              ElementsAre(HasSubstr("has home, lab; did you mean \"home\"?")));
}

TEST_F(SettingsTest, AContextGoesOverTheEnvironmentOnlyAsAFlag) {
  const std::string path =
      Write("threads: 3\ncontexts:\n  lab: {listen: lab, insecure: false, store: there}\n");
  setenv("TEST_LISTEN", "environment", 1);
  setenv("TEST_INSECURE", "true", 1);
  setenv("TEST_THREADS", "4", 1);
  Program flag(/*contexts=*/true, path);
  EXPECT_THAT(flag.Run({"--context", "lab", "--store", "flag"}), ElementsAre());
  EXPECT_EQ(flag.listen, "lab");
  EXPECT_FALSE(flag.insecure);
  EXPECT_EQ(flag.store, "flag");
  EXPECT_EQ(flag.threads, 4) << "the context does not speak of it";
  EXPECT_EQ(flag.OriginOf("listen"), path + ":3");
  setenv("TEST_CONTEXT", "lab", 1);
  Program variable(/*contexts=*/true, path);
  EXPECT_THAT(variable.Run({}), ElementsAre());
  EXPECT_EQ(variable.listen, "environment");
  EXPECT_EQ(variable.OriginOf("listen"), "environment");
  EXPECT_EQ(variable.store, "there");
}

TEST_F(SettingsTest, KeysOfContextsThatDoNotHoldAreLookedAtToo) {
  const std::string path = Write("contexts:\n  lab: {lisen: lab}\n");
  Program program(/*contexts=*/true, path);
  EXPECT_THAT(program.Run({}), ElementsAre(HasSubstr(path + ":2: \"lisen\"")));
}

// Its own settings would hold, and none of those of the one that it names.
TEST_F(SettingsTest, AContextChoosesNoOther) {
  const std::string path =
      Write("context: home\ncontexts:\n  home: {context: lab}\n  lab: {listen: lab}\n");
  Program program(/*contexts=*/true, path);
  EXPECT_THAT(program.Run({}), ElementsAre(HasSubstr(path + ":3: the context \"home\"")));
}

TEST_F(SettingsTest, WarnsOfVariablesThatMayBeMisspelt) {
  setenv("TEST_THREDS", "4", 1);
  setenv("TEST_CONFIGG", "a=b", 1);
  setenv("TEST_LISTN", "", 1);  // Empty: as if it were not there.
  setenv("TEST_BUILD_FOLDER", "build", 1);
  setenv("TEST_THREADS", "4", 1);
  Program program;
  EXPECT_THAT(program.Run({}), ElementsAre());
  EXPECT_THAT(
      program.settings.Warnings(),
      UnorderedElementsAre("the variable TEST_THREDS is no setting; did you mean TEST_THREADS?",
                           "the variable TEST_CONFIGG is no setting; did you mean TEST_CONFIG?"));
}

TEST_F(SettingsTest, DoesNotWarnOfVariablesOfKubernetes) {
  // What a Service called test brings about, and one called test-store. PORT is near STORE.
  const std::vector<const char*> names = {
      "TEST_PORT",
      "TEST_SERVICE_HOST",
      "TEST_SERVICE_PORT",
      "TEST_SERVICE_PORT_GRPC",
      "TEST_PORT_7070_TCP",
      "TEST_PORT_7070_TCP_PROTO",
      "TEST_PORT_7070_TCP_PORT",
      "TEST_PORT_7070_TCP_ADDR",
      "TEST_STORE_PORT",
  };
  for (const char* name : names) setenv(name, "tcp://10.0.0.1:7070", 1);
  Program program;
  EXPECT_THAT(program.Run({}), ElementsAre());
  EXPECT_THAT(program.settings.Warnings(), ElementsAre());
  for (const char* name : names) unsetenv(name);
}

TEST(ShownValue, HidesPasswordsOfUrls) {
  EXPECT_EQ(ShownValue("etcd://jane:secret@host:2379/a"), "etcd://***@host:2379/a");
  EXPECT_EQ(ShownValue("etcd://host:2379/a@b"), "etcd://host:2379/a@b");
  EXPECT_EQ(ShownValue("plain"), "plain");
}

}  // namespace
}  // namespace stagewright
