#include "planner_service/wire/manual_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::json;

TEST(ManualDevicesTest, AreNumbersOrNames) {
  const ManualDevices numbers =
      ManualDevicesOf(R"({"stages": [{"devices": [0]}, {"devices": [3, 1]}]})");
  EXPECT_EQ(numbers.numbered, 4);
  EXPECT_THAT(numbers.named, IsEmpty());
  const ManualDevices names = ManualDevicesOf(
      R"({"stages": [{"devices": ["w2/cpu0", "w1/cpu0"]}, {"devices": ["w2/cpu0"]}]})");
  EXPECT_EQ(names.numbered, 0);
  EXPECT_THAT(names.named, ElementsAre("w1/cpu0", "w2/cpu0"));
}

TEST(ManualDevicesTest, AreUnknownOfWhatIsBothOrUnreadable) {
  for (const char* plan :
       {"", "{", "[]", R"({"stages": 3})", R"({"stages": [{"devices": 2}]})",
        R"({"stages": [{"devices": [1.5]}]})", R"({"stages": [{"devices": [100000]}]})",
        R"({"stages": [{"devices": [9223372036854775807]}]})",
        R"({"stages": [{"devices": [0]}, {"devices": ["w1/cpu0"]}]})"}) {
    EXPECT_EQ(ManualDevicesOf(plan).numbered, 0) << plan;
    EXPECT_THAT(ManualDevicesOf(plan).named, IsEmpty()) << plan;
    EXPECT_EQ(ByNumber(plan, {"w1/cpu0"}), plan);
  }
}

TEST(StandForOthersTest, IfNoneIsThereAndAsManyOthersAre) {
  const std::vector<std::string> named = {"gpu0", "gpu1"};
  EXPECT_TRUE(StandForOthers(named, {"w1/cpu0", "w2/cpu0"}));
  EXPECT_TRUE(StandForOthers(named, {"w1/cpu0", "w2/cpu0", "w3/cpu0"}));
  EXPECT_FALSE(StandForOthers(named, {"w1/cpu0"}));
  EXPECT_FALSE(StandForOthers(named, {"gpu1", "w1/cpu0", "w2/cpu0"}));
}

TEST(ByNumberTest, NumbersThoseAtWorkInTheOrderOfTheCluster) {
  const std::string plan = R"({"kind": "graph", "stages": [
      {"nodes": ["a"], "devices": ["node0/device10", "node0/device9"]},
      {"nodes": ["*"], "devices": ["node1/device0"], "k": 2}],
    "orders": ["device node1/device0: F1.0 B1.0", "device node0/device9: F0.0", "device elsewhere: F0.0", 3]})";
  const Json numbered = Json::parse(
      ByNumber(plan, {"node0/device8", "node0/device9", "node0/device10", "node0/device9"}));
  EXPECT_EQ(numbered["stages"][0]["devices"], Json({1, 0}));
  EXPECT_EQ(numbered["stages"][1]["devices"], Json({2})) << "behind those of the list";
  EXPECT_EQ(numbered["orders"],
            Json({"device 2: F1.0 B1.0", "device 0: F0.0", "device elsewhere: F0.0", 3}));
  EXPECT_EQ(numbered["stages"][1]["k"], 2);
  EXPECT_EQ(numbered["kind"], "graph");
}

TEST(ByNumberTest, NumbersMeanThemselves) {
  const std::string plan = R"({"stages": [{"nodes": ["*"], "devices": [1]}]})";
  EXPECT_EQ(ByNumber(plan, {"gpu0", "gpu1"}), plan);
}

}  // namespace
}  // namespace stagewright
