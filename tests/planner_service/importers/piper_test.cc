#include "planner_service/importers/piper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/cost/value_bytes.h"
#include "nlohmann/json.hpp"
#include "planner_service/importers/profile.h"
#include "tests/support/shared_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json Way(const char* id, double seconds, Json from, Json to) {
  return {{"id", id},
          {"timePerSample", seconds},
          {"parameterSize", 400.0},
          {"memoryUsageA", 64.4},
          {"memoryUsageB", 1600.0},
          {"syncTimeFw", std::move(from)},
          {"syncTimeBw", std::move(to)}};
}

// 7 -> 3, 7 -> 9, 3 -> 9, and 7 -> 9 a second time; node 3 in four ways.
Json Small() {
  return {{"maxDevices", 10},
          {"maxMemoryPerDevice", 8e9},
          {"bandwidth", 25e9},
          {"mbsInBatch", 256},
          {"nodes",
           {{{"id", 7},
             {"name", "a"},
             {"TMPCs", {{"1", {Way("vanilla", 0.003, Json::object(), {{"3", 5.0}, {"9", 0.0}})}}}}},
            {{"id", 3},
             {"name", "b"},
             {"TMPCs",
              {{"2",
                {Way("activation recomp", 0.005, {{"7", 8}}, {{"9", 1}}),
                 Way("vanilla", 0.004, {{"7", 8}}, {{"9", 1}})}},
               {"1",
                {Way("vanilla", 0.006, {{"7", 0}}, {{"9", 0}}),
                 Way("activation recomp", 0.0075, {{"7", 0}}, {{"9", 0}})}}}}},
            {{"id", 9},
             {"name", "b"},
             {"TMPCs", {{"1", {Way("vanilla", 0, {{"7", 0}, {"3", 0}}, Json::object())}}}}}}},
          {"edges",
           {{{"sourceId", 7}, {"destId", 3}, {"communicationCost", 10.0}},
            {{"sourceId", 7}, {"destId", 9}, {"communicationCost", 20}},
            {{"sourceId", 7}, {"destId", 9}, {"communicationCost", 2}},
            {{"sourceId", 3}, {"destId", 9}, {"communicationCost", 30}}}}};
}

TEST(PiperTest, ReadsEverythingTheFileHolds) {
  const auto profile = ImportPiper(Small().dump(), "small.json");
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_TRUE(profile->piper.has_value());
  EXPECT_EQ(profile->piper->max_devices, 10);
  EXPECT_EQ(profile->piper->memory_per_device, 8'000'000'000);
  EXPECT_EQ(profile->piper->bytes_per_second, 25e9);
  EXPECT_EQ(profile->piper->micro_batches, 256);
  EXPECT_TRUE(profile->warnings.empty());

  const Graph& graph = profile->graph;
  ASSERT_EQ(graph.size(), 3);
  EXPECT_THAT(graph.dag().Edges(), ElementsAre(std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)));
  EXPECT_EQ(graph.node(NodeId(2)).name, "b#9");
  const ProfiledCost& a = *graph.node(NodeId(0)).cost;
  EXPECT_EQ(a.forward, 1'000'000);  // A third, as nothing says more.
  EXPECT_EQ(a.backward, 2'000'000);
  EXPECT_EQ(a.saved_bytes, 64);
  EXPECT_EQ(a.resident_bytes, 1600);
  EXPECT_EQ(a.activation_bytes, 22);
  EXPECT_THAT(a.edge_bytes,
              ElementsAre(NeighborBytes{NodeId(1), 10}, NeighborBytes{NodeId(2), 22}));
  EXPECT_EQ(ProfiledEdgeBytes(graph, NodeId(0), NodeId(1)), 10);
  EXPECT_EQ(ProfiledEdgeBytes(graph, NodeId(1), NodeId(2)), 30);
  EXPECT_THAT(a.configurations.at(0).sync_to, ElementsAre(NeighborBytes{NodeId(1), 5}));

  const ProfiledCost& b = *graph.node(NodeId(1)).cost;
  EXPECT_EQ(b.forward, 1'500'000);  // What recomputing adds.
  EXPECT_EQ(b.backward, 4'500'000);
  EXPECT_TRUE(b.edge_bytes.empty());
  ASSERT_EQ(b.configurations.size(), 4u);
  EXPECT_EQ(b.configurations[2],
            (ProfiledConfiguration{
                2, false, 4'000'000, 400, 64, 1600, {{NodeId(0), 8}}, {{NodeId(2), 1}}}));
  EXPECT_TRUE(b.configurations[3].recompute);
}

TEST(PiperTest, MemoryIsWhatTheFileSaysForAnyOptimizer) {
  const auto profile = ImportPiper(Small().dump(), "small.json", {.profile_batch = 2});
  ASSERT_TRUE(profile.ok()) << profile.status();
  const ProfiledCost& cost = *profile->graph.node(NodeId(1)).cost;
  EXPECT_EQ(ResidentBytes(cost, Optimizer::kSgd), 1600);
  EXPECT_EQ(ResidentBytes(cost, Optimizer::kAdam), 1600);
  EXPECT_EQ(MakeAnalyticCostModel(profile->graph)->SavedBytes(NodeId(1), 4), 128);
}

TEST(PiperTest, WhereDegreeOneIsMissingTheSmallestStandsIn) {
  Json json = Small();
  json["nodes"][1]["TMPCs"].erase("1");
  const auto profile = ImportPiper(json.dump(), "small.json");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const ProfiledCost& cost = *profile->graph.node(NodeId(1)).cost;
  EXPECT_EQ(cost.forward, 2'000'000);
  EXPECT_EQ(cost.forward + cost.backward, 8'000'000);
  EXPECT_EQ(cost.resident_bytes, 3200);
  EXPECT_THAT(profile->warnings, ElementsAre(HasSubstr("1 nodes (\"b\" first)")));
}

TEST(PiperTest, TheUnitOfTimesIsAnOption) {
  Json json = Small();
  json["nodes"][1]["TMPCs"]["1"][0]["timePerSample"] = 25.5;
  const auto seconds = ImportPiper(json.dump(), "gnmt.json");
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  const ProfiledCost& read = *seconds->graph.node(NodeId(1)).cost;
  EXPECT_EQ(read.forward + read.backward, 25'500'000'000);
  EXPECT_THAT(seconds->warnings, ElementsAre(HasSubstr("--time-unit ms")));
  const auto millis =
      ImportPiper(json.dump(), "gnmt.json", {.piper_time_unit = ProfileTimeUnit::kMilliseconds});
  ASSERT_TRUE(millis.ok()) << millis.status();
  EXPECT_EQ(millis->graph.node(NodeId(1)).cost->configurations[0].time, 25'500'000);
  EXPECT_TRUE(millis->warnings.empty());
}

struct Bad {
  const char* name;
  std::function<void(Json&)> damage;
  const char* message;
};

class BadPiperTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadPiperTest, OneMessageNamesPathAndField) {
  Json json = Small();
  GetParam().damage(json);
  const auto profile = ImportPiper(json.dump(), "p.json");
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(profile.status().message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadPiperTest,
    ::testing::Values(
        Bad{"NotAnObject", [](Json& j) { j = Json::array(); }, "p.json: the file is not an object"},
        Bad{"NoBandwidth", [](Json& j) { j.erase("bandwidth"); }, "p.json: bandwidth is missing"},
        Bad{"NegativeBandwidth", [](Json& j) { j["bandwidth"] = -1; },
            "p.json: bandwidth is not a positive number"},
        Bad{"NoDevices", [](Json& j) { j["maxDevices"] = 0; }, "p.json: maxDevices is less than 1"},
        Bad{"HalfAMicroBatch", [](Json& j) { j["mbsInBatch"] = 2.5; },
            "p.json: mbsInBatch is not an integer"},
        Bad{"NoNodes", [](Json& j) { j["nodes"] = Json::array(); }, "p.json: nodes is empty"},
        Bad{"DuplicateId", [](Json& j) { j["nodes"][2]["id"] = 7; },
            "p.json: nodes[2].id 7 is used twice"},
        Bad{"FractionalId", [](Json& j) { j["nodes"][2]["id"] = 7.5; },
            "p.json: nodes[2].id is not an integer"},
        Bad{"NegativeTime",
            [](Json& j) { j["nodes"][1]["TMPCs"]["2"][0]["timePerSample"] = -1e-9; },
            "p.json: nodes[1].TMPCs.2[0].timePerSample is negative"},
        Bad{"HugeTime", [](Json& j) { j["nodes"][1]["TMPCs"]["2"][0]["timePerSample"] = 1e300; },
            "p.json: nodes[1].TMPCs.2[0].timePerSample is too large"},
        Bad{"NullMemory", [](Json& j) { j["nodes"][0]["TMPCs"]["1"][0]["memoryUsageA"] = nullptr; },
            "p.json: nodes[0].TMPCs.1[0].memoryUsageA is not a number"},
        Bad{"BadDegree", [](Json& j) { j["nodes"][0]["TMPCs"]["0"] = j["nodes"][0]["TMPCs"]["1"]; },
            "p.json: nodes[0].TMPCs.0 is no degree of tensor parallelism"},
        Bad{"NoConfiguration", [](Json& j) { j["nodes"][0]["TMPCs"]["1"] = Json::array(); },
            "p.json: nodes[0].TMPCs.1 is not a list of one or two configurations"},
        Bad{"UnknownConfiguration", [](Json& j) { j["nodes"][0]["TMPCs"]["1"][0]["id"] = "other"; },
            "p.json: nodes[0].TMPCs.1[0].id is neither \"vanilla\" nor \"activation recomp\""},
        Bad{"ConfigurationTwice", [](Json& j) { j["nodes"][1]["TMPCs"]["2"][0]["id"] = "vanilla"; },
            "p.json: nodes[1].TMPCs.2 gives \"vanilla\" twice"},
        Bad{"UnknownEnd", [](Json& j) { j["edges"][1]["destId"] = 8; },
            "p.json: edges[1].destId names the unknown node 8"},
        Bad{"NegativeEdge", [](Json& j) { j["edges"][0]["communicationCost"] = -10; },
            "p.json: edges[0].communicationCost is negative"},
        Bad{"Cycle",
            [](Json& j) {
              j["edges"][3] = {{"sourceId", 9}, {"destId", 7}, {"communicationCost", 1}};
              j["nodes"][1]["TMPCs"].erase("2");
              j["nodes"][1]["TMPCs"]["1"][0]["syncTimeBw"] = Json::object();
              j["nodes"][1]["TMPCs"]["1"][1]["syncTimeBw"] = Json::object();
              j["nodes"][2]["TMPCs"]["1"][0]["syncTimeFw"] = Json::object();
            },
            "p.json: nodes: cycle through a -> b#9 -> a"},
        Bad{"SyncWithAStranger",
            [](Json& j) {
              j["nodes"][0]["TMPCs"]["1"][0]["syncTimeFw"] = {{"9", 1}};
            },
            "p.json: nodes[0].TMPCs.1[0].syncTimeFw.9 is not joined to the node by such an edge"},
        Bad{"SyncWithNobody",
            [](Json& j) {
              j["nodes"][0]["TMPCs"]["1"][0]["syncTimeFw"] = {{"x", 1}};
            },
            "p.json: nodes[0].TMPCs.1[0].syncTimeFw.x is not the id of a node"}),
    [](const auto& test) { return test.param.name; });

TEST(PiperTest, TextThatIsNoJson) {
  const std::string text = Small().dump(1);
  const auto message = [](const std::string& t) {
    return std::string(ImportPiper(t, "p.json").status().message());
  };
  EXPECT_EQ(message(""), "p.json, line 1, column 1: not JSON: the text ends too early");
  EXPECT_THAT(message(text.substr(0, text.size() / 2)), HasSubstr("ends too early"));
  EXPECT_THAT(message("{\n \"maxDevices\": NaN}"), HasSubstr("p.json, line 2"));
  EXPECT_EQ(message("{\"a\xff\": 1}"), "p.json, line 1, column 4: not UTF-8");
  EXPECT_THAT(message(std::string(10'000'000, '[')), HasSubstr("nested deeper than 64 levels"));
}

// Our own files have no bytes of synchronisation, and times in seconds.
TEST(PiperTest, SyntheticProfiles) {
  const std::pair<const char*, int32_t> files[] = {{"synthetic/mmt4_layer.json", 39},
                                                   {"synthetic/mmt4_op.json", 103},
                                                   {"synthetic/candle7.json", 34},
                                                   {"synthetic/dlrm7x7.json", 41}};
  for (const auto& [name, operators] : files) {
    const auto profile = ReadProfile(ProfileFormat::kPiper, name);
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(profile->graph.size(), operators) << name;
    EXPECT_TRUE(profile->warnings.empty()) << name;
  }
}

// The profiles that the published programs were timed on are those that code makes.
TEST(PiperTest, PublishedProgramsWereTimedOnTheSyntheticProfiles) {
  for (const std::string& name : SyntheticProfiles()) {
    if (name.find("vgg") != std::string::npos) continue;
    const std::string path = SharedGraphs() + "/" + name;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no profile " << name;
    const bool json = name.ends_with(".json");
    const ProfileFormat format = json ? ProfileFormat::kPiper : ProfileFormat::kPipeDream;
    const auto file = ImportProfileFile(format, path);
    const auto own = ReadProfile(format, name);
    ASSERT_TRUE(file.ok() && own.ok()) << file.status() << own.status();
    ASSERT_EQ(own->graph.size(), file->graph.size()) << name;
    for (int32_t v = 0; v < own->graph.size(); ++v) {
      const Node& node = own->graph.node(NodeId(v));
      const Node& published = file->graph.node(NodeId(v));
      EXPECT_EQ(node.name, published.name) << name;
      EXPECT_EQ(node.after, published.after) << name << " " << node.name;
      EXPECT_TRUE(node.cost == published.cost) << name << " " << node.name;
    }
  }
}

TEST(PiperTest, PublishedProfiles) {
  const std::pair<const char*, int32_t> files[] = {{"piper/gnmt.json", 78},
                                                   {"piper/resnet.json", 177}};
  for (const auto& [name, operators] : files) {
    STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, name);
    const auto profile = ReadProfile(ProfileFormat::kPiper, path);
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(profile->graph.size(), operators) << name;
    EXPECT_EQ(profile->warnings.size(), 1u) << name;
    // "vanilla" and "activation recomp" agree with PipeDream's own profile of the same model.
    if (std::string(name) == "piper/resnet.json") {
      EXPECT_EQ(profile->graph.node(NodeId(0)).cost->forward, 1'236'000'000);
      EXPECT_EQ(profile->graph.node(NodeId(0)).cost->backward, 1'442'000'000);
    }
  }
}

}  // namespace
}  // namespace stagewright
