#include "common/cost/measured/operator_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OperatorProfile Example() {
  OperatorProfile profile;
  MeasuredOperators& cpu = profile.devices[{"cpu", "torch 2.13.0, 1 thread"}];
  cpu["aten.relu.default(float32[s,8]') -> float32[s,8]'"] = {
      "2026-11-22", {{1, 100, 60, 60, 0, 32, 0}, {2, 120, 70, 70, 0, 64, 8}}};
  cpu["aten.mm.default(a \"quoted\" one)"] = {"2026-11-21", {{4, 9, 8, 5, 3, 0, 0}}, "jobs/7"};
  profile.devices[{"cuda", "torch 2.11.0"}];
  return profile;
}

// The file of Example with one text replaced.
absl::Status Spoilt(const std::string& from, const std::string& to) {
  std::string json = OperatorProfileToJson(Example());
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return ParseOperatorProfile(json.replace(at, from.size(), to), "spoilt.json").status();
}

TEST(OperatorProfile, RoundTripsThroughJson) {
  const auto read = ParseOperatorProfile(OperatorProfileToJson(Example()), "profile.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Example());
}

TEST(OperatorProfile, BadFilesAreToldByFileOperatorAndField) {
  const auto relu = HasSubstr("aten.relu.default(float32[s,8]')");
  const auto file = HasSubstr("operator profile spoilt.json");
  EXPECT_THAT(Spoilt("\"forward_ns\": 120", "\"forward_ns\": -120").message(),
              AllOf(file, relu, HasSubstr("forward_ns is -120, which is negative")));
  EXPECT_THAT(Spoilt("\"forward_ns\": 120", "\"forward_ns\": 1e300").message(),
              AllOf(file, relu, HasSubstr("forward_ns is not an integer")));
  EXPECT_THAT(Spoilt("\"forward_ns\": 120", "\"forward_ns\": 1e999").message(),
              AllOf(file, HasSubstr("1e999")));
  EXPECT_THAT(Spoilt("\"forward_ns\": 120", "\"forward_ns\": NaN").message(),
              AllOf(file, HasSubstr("not JSON")));
  EXPECT_THAT(Spoilt("\"forward_ns\": 120", "\"forward_ns\": 2e15").message(),
              AllOf(file, relu, HasSubstr("forward_ns"), HasSubstr("too large")));
  EXPECT_THAT(Spoilt("\"kept_bytes\": 64", "\"kept_bytes\": -1").message(),
              AllOf(file, relu, HasSubstr("kept_bytes is -1")));
  EXPECT_THAT(Spoilt("\"backward_ns\": 70", "\"backward_ns\": 71").message(),
              AllOf(file, relu, HasSubstr("backward_ns is not the sum")));
  EXPECT_THAT(Spoilt("\"samples\": 2,", "\"samples\": 1,").message(),
              AllOf(file, relu, HasSubstr("1 follows 1")));
  EXPECT_THAT(Spoilt("\"samples\": 1,", "\"samples\": 0,").message(),
              AllOf(file, relu, HasSubstr("0 follows 0")));
  EXPECT_THAT(Spoilt("\"forward_ns\": 120", "\"forwards_ns\": 120").message(),
              AllOf(file, relu, HasSubstr("forwards_ns is not a known field")));
  EXPECT_THAT(Spoilt("\"forward_ns\": 120,", "").message(),
              AllOf(file, relu, HasSubstr("forward_ns is missing")));
  EXPECT_THAT(Spoilt("2026-11-22", "2026-13-22").message(),
              AllOf(file, relu, HasSubstr("measured_on")));
  EXPECT_THAT(Spoilt("\"version\": 1", "\"version\": 2").message(),
              AllOf(file, HasSubstr("version is 2, but this program reads version 1")));
  EXPECT_THAT(Spoilt("\"device_kind\": \"cpu\"", "\"device_kind\": \"\"").message(),
              AllOf(file, HasSubstr("device_kind is empty")));
  EXPECT_THAT(Spoilt("torch 2.13.0, 1 thread", "").message(), HasSubstr("software is empty"));
}

TEST(OperatorProfile, WhatIsGivenTwiceIsRefused) {
  const std::string one = R"({"signature": "a", "measured_on": "2026-11-22", "samples": []})";
  const auto twice = ParseOperatorProfile(
      R"({"version": 1, "devices": [{"device_kind": "k", "software": "s", "operators": [)" + one +
          "," + one + "]}]}",
      "twice.json");
  EXPECT_THAT(twice.status().message(), HasSubstr("operators[\"a\"] is given twice"));
  const auto device = std::string(R"({"device_kind": "k", "software": "s", "operators": []})");
  EXPECT_THAT(ParseOperatorProfile(R"({"version": 1, "devices": [)" + device + "," + device + "]}",
                                   "twice.json")
                  .status()
                  .message(),
              HasSubstr("devices[1] repeats"));
  EXPECT_THAT(ParseOperatorProfile(R"({"version": 1, "devices": [{"device_kind": "k",
                  "software": "s", "operators": [)" +
                                       one + "]}]}",
                                   "none.json")
                  .status()
                  .message(),
              HasSubstr("samples is empty"));
}

TEST(OperatorProfile, MergeReplacesWhatIsNewer) {
  OperatorProfile profile = Example();
  OperatorProfile newer;
  const ProfiledDevice cpu{"cpu", "torch 2.13.0, 1 thread"};
  newer.devices[cpu]["aten.mm.default(a \"quoted\" one)"] = {"2026-11-23", {{1, 5, 0, 0, 0, 0, 0}}};
  newer.devices[{"cpu", "other"}]["new"] = {"2026-11-23", {{1, 5, 0, 0, 0, 0, 0}}};
  Merge(newer, profile);
  EXPECT_EQ(profile.devices.size(), 3u);
  EXPECT_EQ(profile.devices[cpu].size(), 2u);
  EXPECT_EQ(profile.devices[cpu]["aten.mm.default(a \"quoted\" one)"].measured_on, "2026-11-23");
}

}  // namespace
}  // namespace stagewright
