#include "worker_daemon/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/data/safetensors_files.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

Manifest Example() {
  Manifest manifest;
  manifest.step = 100;
  manifest.samples = 1600;
  manifest.seed = ~uint64_t{0};
  manifest.shuffled = false;
  manifest.optimizer = "adam";
  manifest.graph = "tied";
  manifest.graph_fingerprint = 0x8000'0000'0000'0001;
  manifest.run = "jobs-7-18a3f";
  manifest.generation = 3;
  manifest.evaluations = {0.1 + 0.2, 3};
  manifest.files = {{"model-00000.safetensors", 12, 0xdeadbeef}};
  manifest.weight_map = {{"a.weight", "model-00000.safetensors"}};
  manifest.optimizer_map = {{"a.weight.step", "optimizer-00000.safetensors"}};
  manifest.aliases = {{"b.weight", "a.weight"}};
  return manifest;
}

class ManifestTest : public ::testing::Test {
 protected:
  std::string Error() const {
    const auto manifest = ReadManifest(directory_.File(""));
    EXPECT_FALSE(manifest.ok());
    return std::string(manifest.status().message());
  }
  const TempDirectory directory_;
  const std::string path_ = directory_.File("manifest.json");
};

TEST_F(ManifestTest, ComesBackAsItWas) {
  const Manifest wanted = Example();
  ASSERT_TRUE(WriteManifest(directory_.File(""), wanted).ok());
  const auto found = ReadManifest(directory_.File(""));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->step, wanted.step);
  EXPECT_EQ(found->samples, wanted.samples);
  EXPECT_EQ(found->seed, wanted.seed);
  EXPECT_EQ(found->shuffled, wanted.shuffled);
  EXPECT_EQ(found->optimizer, wanted.optimizer);
  EXPECT_EQ(found->graph, wanted.graph);
  EXPECT_EQ(found->graph_fingerprint, wanted.graph_fingerprint);
  EXPECT_EQ(found->run, wanted.run);
  EXPECT_EQ(found->generation, wanted.generation);
  EXPECT_EQ(found->evaluations, wanted.evaluations);
  ASSERT_EQ(found->files.size(), 1u);
  EXPECT_EQ(found->files[0].name, wanted.files[0].name);
  EXPECT_EQ(found->files[0].bytes, wanted.files[0].bytes);
  EXPECT_EQ(found->files[0].crc32, wanted.files[0].crc32);
  EXPECT_EQ(found->weight_map, wanted.weight_map);
  EXPECT_EQ(found->optimizer_map, wanted.optimizer_map);
  EXPECT_EQ(found->aliases, wanted.aliases);
  EXPECT_TRUE(found->slices.empty());
}

TEST_F(ManifestTest, ThoseOfOlderVersionsNameNoRun) {
  Manifest old = Example();
  old.run.clear();
  ASSERT_TRUE(WriteManifest(directory_.File(""), old).ok());
  EXPECT_EQ(ReadBytes(path_).find("\"run\""), std::string::npos);
  const auto found = ReadManifest(directory_.File(""));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->run, "");
}

TEST_F(ManifestTest, SlicesComeBack) {
  Manifest wanted = Example();
  wanted.slices["w"] = {1, {"w[1/2]", "w[2/2]"}};
  ASSERT_TRUE(WriteManifest(directory_.File(""), wanted).ok());
  const auto found = ReadManifest(directory_.File(""));
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->slices.size(), 1u);
  EXPECT_EQ(found->slices.at("w").dim, 1);
  std::string forged = ReadBytes(path_);
  forged.replace(forged.find("\"dim\": 1"), 8, "\"dim\": 4294967296");
  WriteBytes(path_, forged);
  EXPECT_THAT(Error(), HasSubstr("4294967296 is no number from 0 to 2147483647"));
  EXPECT_EQ(found->slices.at("w").slices, wanted.slices.at("w").slices);
}

TEST_F(ManifestTest, EvaluationsMayBeAbsentOrWithoutABest) {
  for (const EvaluationHistory& history :
       {EvaluationHistory(), EvaluationHistory{std::numeric_limits<double>::infinity(), 2}}) {
    Manifest manifest = Example();
    manifest.evaluations = history;
    ASSERT_TRUE(WriteManifest(directory_.File(""), manifest).ok());
    const auto found = ReadManifest(directory_.File(""));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->evaluations, history);
    EXPECT_EQ(ReadBytes(path_).find("evaluations") == std::string::npos,
              history == EvaluationHistory());
  }
}

TEST_F(ManifestTest, DamagedOnesAreNamed) {
  EXPECT_THAT(Error(), HasSubstr(path_));
  ASSERT_TRUE(WriteManifest(directory_.File(""), Example()).ok());
  const std::string good = ReadBytes(path_);
  // No prefix of it is a manifest, and none breaks the reader.
  for (size_t length = 0; length + 2 < good.size(); length += 7) {
    WriteBytes(path_, good.substr(0, length));
    EXPECT_THAT(Error(), HasSubstr(path_));
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    WriteBytes(path_, bad);
    return Error();
  };
  EXPECT_THAT(replaced("\"version\": 1", "\"version\": 2"), HasSubstr("its version is 2"));
  EXPECT_THAT(replaced("stagewright-checkpoint", "other"), HasSubstr("another format"));
  EXPECT_THAT(replaced("\"model-00000", "\"../model-00000"), HasSubstr("is no name of a file"));
  EXPECT_THAT(replaced("\"step\": 100", "\"step\": -1"), HasSubstr("-1 is no number from 0"));
  EXPECT_THAT(replaced("deadbeef", "zzz"), HasSubstr("hexadecimal"));
  EXPECT_THAT(replaced("\"since_best\": 3", "\"since_best\": -3"),
              HasSubstr("-3 is no number from 0"));
  // What a cast would make another number of.
  for (const char* const forged : {"1e30", "9223372036854775808", "0.5", "\"1\""})
    EXPECT_THAT(replaced("\"step\": 100", std::string("\"step\": ") + forged),
                HasSubstr("is no number from 0"));
  EXPECT_THAT(replaced("\"bytes\": 12", "\"bytes\": 1e30"), HasSubstr("is no number from 0"));
  EXPECT_THAT(replaced("18446744073709551615", "1e30"), HasSubstr("is no seed"));
  EXPECT_THAT(replaced("18446744073709551615", "-1"), HasSubstr("is no seed"));
}

TEST_F(ManifestTest, ChecksumsAreThoseOfZlib) {
  WriteBytes(path_, "123456789");
  const auto sum = SumFile(path_);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->name, "manifest.json");
  EXPECT_EQ(sum->bytes, 9);
  EXPECT_EQ(sum->crc32, 0xcbf43926u);  // The check value that CRC-32/ISO-HDLC is published with.
  EXPECT_THAT(std::string(SumFile(directory_.File("none")).status().message()), HasSubstr("none"));
}

}  // namespace
}  // namespace stagewright::testing
