#include "common/topology/cluster_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/topology/cluster.h"
#include "common/topology/presets.h"
#include "tests/support/checkout/source_path.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kShort[] = R"({
  "nodes": 2, "devices_per_node": 4,
  "kind": {"name": "gpu", "flops_per_second": 1e13, "memory_bytes_per_second": 5e11,
           "update_bytes_per_second": 7e11,
           "kernel_overhead_ns": 4000, "pass_overhead_ns": 1, "message_overhead_ns": 2,
           "step_overhead_ns": 3, "parameter_overhead_ns": 4, "reduction_overhead_ns": 5,
           "message_bytes_per_second": 6e9, "product_slowdown": 1.5, "memory_slowdown": 2,
           "adds_gradients": true, "asynchronous": true, "unaligned_slowdown": 6.5},
  "memory_bytes": 16e9,
  "inside": {"latency_ns": 1000, "bytes_per_second": 5e10},
  "outside": {"latency_ns": 9000, "bytes_per_second": 1e10}
})";

constexpr char kExplicit[] = R"({
  "name": "pair",
  "kinds": [{"name": "big", "flops_per_second": 2e13, "memory_bytes_per_second": 9e11},
            {"name": "small", "flops_per_second": 1e13, "memory_bytes_per_second": 5e11,
             "half_efficiency_flops": 1e8}],
  "devices": [{"name": "a", "kind": "big", "memory_bytes": 32000000000},
              {"name": "b", "kind": "small", "node": 1, "memory_bytes": 16000000000}],
  "links": [{"name": "up", "latency_ns": 100, "bytes_per_second": 1e9},
            {"name": "down", "latency_ns": 200, "bytes_per_second": 2e9}],
  "routes": [{"from": "a", "to": "b", "links": ["up"]},
             {"from": "b", "to": "a", "links": ["down", "up"]}]
})";

TEST(ClusterJson, ShortForm) {
  const auto cluster = ParseCluster(kShort, "mine.json");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->name(), "mine.json");
  EXPECT_EQ(cluster->size(), 8);
  EXPECT_EQ(cluster->device(DeviceId(0)).memory, 16'000'000'000);
  EXPECT_EQ(cluster->kinds()[0].kernel_overhead, 4000);
  EXPECT_EQ(cluster->kinds()[0].pass_overhead, 1);
  EXPECT_EQ(cluster->kinds()[0].message_overhead, 2);
  EXPECT_EQ(cluster->kinds()[0].step_overhead, 3);
  EXPECT_EQ(cluster->kinds()[0].parameter_overhead, 4);
  EXPECT_EQ(cluster->kinds()[0].reduction_overhead, 5);
  EXPECT_EQ(cluster->kinds()[0].message_bytes_per_second, 6e9);
  EXPECT_EQ(cluster->kinds()[0].update_bytes_per_second, 7e11);
  EXPECT_EQ(cluster->kinds()[0].product_slowdown, 1.5);
  EXPECT_EQ(cluster->kinds()[0].memory_slowdown, 2);
  EXPECT_TRUE(cluster->kinds()[0].adds_gradients);
  EXPECT_TRUE(cluster->kinds()[0].asynchronous);
  EXPECT_EQ(cluster->kinds()[0].unaligned_slowdown, 6.5);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(7)).latency, 9000);
}

TEST(ClusterJson, ExplicitForm) {
  const auto cluster = ParseCluster(kExplicit, "pair.json");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->name(), "pair");
  EXPECT_FALSE(cluster->Homogeneous());
  EXPECT_EQ(cluster->kind_of(DeviceId(1)).half_efficiency_flops, 1e8);
  EXPECT_THAT(cluster->route(DeviceId(1), DeviceId(0)).links, ElementsAre(1, 0));
  EXPECT_EQ(cluster->route(DeviceId(1), DeviceId(0)).latency, 300);
}

void ExpectSame(const Cluster& a, const Cluster& b) {
  EXPECT_EQ(a.name(), b.name());
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(a.links().size(), b.links().size());
  ASSERT_EQ(a.kinds().size(), b.kinds().size());
  for (size_t i = 0; i < a.kinds().size(); ++i) {
    EXPECT_EQ(a.kinds()[i].name, b.kinds()[i].name);
    EXPECT_EQ(a.kinds()[i].flops_per_second, b.kinds()[i].flops_per_second);
    EXPECT_EQ(a.kinds()[i].memory_bytes_per_second, b.kinds()[i].memory_bytes_per_second);
    EXPECT_EQ(a.kinds()[i].kernel_overhead, b.kinds()[i].kernel_overhead);
    EXPECT_EQ(a.kinds()[i].half_efficiency_flops, b.kinds()[i].half_efficiency_flops);
    EXPECT_EQ(a.kinds()[i].pass_overhead, b.kinds()[i].pass_overhead);
    EXPECT_EQ(a.kinds()[i].message_overhead, b.kinds()[i].message_overhead);
    EXPECT_EQ(a.kinds()[i].step_overhead, b.kinds()[i].step_overhead);
    EXPECT_EQ(a.kinds()[i].parameter_overhead, b.kinds()[i].parameter_overhead);
    EXPECT_EQ(a.kinds()[i].reduction_overhead, b.kinds()[i].reduction_overhead);
    EXPECT_EQ(a.kinds()[i].update_bytes_per_second, b.kinds()[i].update_bytes_per_second);
    EXPECT_EQ(a.kinds()[i].message_bytes_per_second, b.kinds()[i].message_bytes_per_second);
    EXPECT_EQ(a.kinds()[i].product_slowdown, b.kinds()[i].product_slowdown);
    EXPECT_EQ(a.kinds()[i].adds_gradients, b.kinds()[i].adds_gradients);
    EXPECT_EQ(a.kinds()[i].asynchronous, b.kinds()[i].asynchronous);
    EXPECT_EQ(a.kinds()[i].unaligned_slowdown, b.kinds()[i].unaligned_slowdown);
    EXPECT_EQ(a.kinds()[i].memory_slowdown, b.kinds()[i].memory_slowdown);
    EXPECT_EQ(a.kinds()[i].tf32_flops_per_second, b.kinds()[i].tf32_flops_per_second);
    EXPECT_EQ(a.kinds()[i].bf16_flops_per_second, b.kinds()[i].bf16_flops_per_second);
    EXPECT_EQ(a.kinds()[i].fp16_flops_per_second, b.kinds()[i].fp16_flops_per_second);
    EXPECT_EQ(a.kinds()[i].efficiency, b.kinds()[i].efficiency);
  }
  for (size_t i = 0; i < a.links().size(); ++i) {
    EXPECT_EQ(a.links()[i].name, b.links()[i].name);
    EXPECT_EQ(a.links()[i].latency, b.links()[i].latency);
    EXPECT_EQ(a.links()[i].bytes_per_second, b.links()[i].bytes_per_second);
  }
  for (int32_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a.devices()[i].name, b.devices()[i].name);
    EXPECT_EQ(a.devices()[i].kind, b.devices()[i].kind);
    EXPECT_EQ(a.devices()[i].node, b.devices()[i].node);
    EXPECT_EQ(a.devices()[i].memory, b.devices()[i].memory);
    for (int32_t j = 0; j < a.size(); ++j) {
      EXPECT_EQ(a.route(DeviceId(i), DeviceId(j)).links, b.route(DeviceId(i), DeviceId(j)).links);
    }
  }
}

TEST(ClusterJson, RoundTrips) {
  for (const char* name : {"summit:3", "dgx-a100:2", "dgx-h200:1", "cpu:1", "cpu:4"}) {
    const auto cluster = ClusterPreset(name);
    ASSERT_TRUE(cluster.ok());
    const std::string text = ClusterToJson(*cluster);
    const auto again = ParseCluster(text, "again.json");
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectSame(*cluster, *again);
    EXPECT_EQ(ClusterToJson(*again), text);
  }
}

// The message for `text` with its first `what` replaced by `with`.
std::string Message(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  const auto cluster = ParseCluster(text.replace(at, what.size(), with), "bad.json");
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument) << with;
  return std::string(cluster.status().message());
}

TEST(ClusterJson, ErrorsInTheShortForm) {
  EXPECT_EQ(Message(kShort, "\"nodes\": 2", "\"nodes\": 0"),
            "cluster file bad.json: nodes: 0 is not positive");
  EXPECT_EQ(Message(kShort, "\"nodes\": 2", "\"nodes\": 2.5"),
            "cluster file bad.json: nodes is not an integer");
  EXPECT_EQ(Message(kShort, "\"nodes\": 2", "\"nodes\": 3000000000"),
            "cluster file bad.json: nodes is 3000000000, which is out of range");
  EXPECT_EQ(Message(kShort, "\"nodes\": 2, ", ""), "cluster file bad.json: nodes is missing");
  EXPECT_EQ(Message(kShort, "\"name\": \"gpu\"", "\"name\": 7"),
            "cluster file bad.json: kind.name is not a text");
  EXPECT_EQ(Message(kShort, "16e9", "-1"),
            "cluster file bad.json: memory_bytes: -1 is not positive");
  EXPECT_EQ(Message(kShort, "5e10", "\"fast\""),
            "cluster file bad.json: inside.bytes_per_second is not a number");
  EXPECT_EQ(Message(kShort, "5e10", "-5"),
            "cluster file bad.json: inside.bytes_per_second: -5 is not a positive number");
  EXPECT_EQ(Message(kShort, "\"kernel_overhead_ns\"", "\"overhead\""),
            "cluster file bad.json: kind.overhead is not a known field (name, flops_per_second, "
            "memory_bytes_per_second, update_bytes_per_second, kernel_overhead_ns, "
            "half_efficiency_flops, "
            "pass_overhead_ns, message_overhead_ns, step_overhead_ns, parameter_overhead_ns, "
            "reduction_overhead_ns, message_bytes_per_second, product_slowdown, memory_slowdown, "
            "adds_gradients, asynchronous, tf32_flops_per_second, bf16_flops_per_second, "
            "fp16_flops_per_second, unaligned_slowdown, efficiency)");
  const std::string name = "\"name\": \"gpu\"";
  EXPECT_EQ(Message(kShort, name, name + ", \"efficiency\": [{\"type\": \"fp8\"}]"),
            "cluster file bad.json: kind.efficiency[0].type is none of fp32, tf32, bf16, fp16");
  EXPECT_EQ(Message(kShort, name,
                    name + ", \"efficiency\": [{\"points\": [{\"flops\": 1, \"share\": 2}]}]"),
            "cluster file bad.json: kind.efficiency[0].points[0].share: 2 is not above 0 and at "
            "most 1");
  EXPECT_EQ(Message(kShort, "{\"latency_ns\": 1000, \"bytes_per_second\": 5e10}", "[]"),
            "cluster file bad.json: inside is not an object");
}

TEST(ClusterJson, ErrorsInTheExplicitForm) {
  EXPECT_EQ(Message(kExplicit, "\"kind\": \"small\"", "\"kind\": \"tiny\""),
            "cluster file bad.json: devices[1].kind names the unknown kind \"tiny\"");
  EXPECT_EQ(Message(kExplicit, "[\"up\"]", "[\"sideways\"]"),
            "cluster file bad.json: routes[0].links names the unknown link \"sideways\"");
  EXPECT_EQ(Message(kExplicit, "[\"up\"]", "[0]"),
            "cluster file bad.json: routes[0].links is not a list of link names");
  EXPECT_EQ(Message(kExplicit, "\"from\": \"b\", \"to\": \"a\"", "\"from\": \"a\", \"to\": \"b\""),
            "cluster file bad.json: routes[1] gives a second route from \"a\" to \"b\"");
  EXPECT_EQ(Message(kExplicit, "\"to\": \"b\"", "\"to\": \"c\""),
            "cluster file bad.json: routes[0].to names the unknown device \"c\"");
  EXPECT_EQ(Message(kExplicit, "32000000000", "0"),
            "cluster file bad.json: devices[0] \"a\".memory_bytes: 0 is not positive");
  EXPECT_EQ(Message(kExplicit, "{\"from\": \"a\", \"to\": \"b\", \"links\": [\"up\"]},", ""),
            "cluster file bad.json: routes: a -> b: there is no route");
}

TEST(ClusterJson, WhatIsNoCluster) {
  for (const char* text : {"", "{", "nodes: 2", "{\"nodes\": NaN}", "{\"nodes\": 1e999}"}) {
    const auto cluster = ParseCluster(text, "bad.json");
    EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(cluster.status().message()), StartsWith("cluster file bad.json"));
  }
  for (const char* text : {"[]", "7", "null"}) {
    EXPECT_EQ(ParseCluster(text, "bad.json").status().message(),
              "cluster file bad.json: the file is not an object");
  }
  EXPECT_EQ(ParseCluster("{\"devices\": []}", "bad.json").status().message(),
            "cluster file bad.json: kinds is missing");
  EXPECT_EQ(
      ParseCluster(R"({"kinds":[],"devices":[],"links":[],"routes":[]})", "x").status().message(),
      "cluster file x: devices: the cluster has no device");
}

TEST(ClusterJson, NoTruncationCrashesOrPasses) {
  const std::string text = kExplicit;
  const size_t end = text.rfind('}');
  for (size_t length = 0; length < end; ++length) {
    EXPECT_FALSE(ParseCluster(text.substr(0, length), "cut.json").ok()) << length;
  }
}

// The examples of docs/clusters.md are what they say.
TEST(ClusterJson, DocumentedExamplesWork) {
  std::ifstream file(testing::SourcePath("docs/clusters.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string open = "```json\n";
  int32_t examples = 0;
  for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const auto cluster = ParseCluster(page.substr(at, page.find("```", at) - at), "clusters.md");
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    ++examples;
  }
  EXPECT_EQ(examples, 2);
}

TEST(LoadCluster, PresetsAndFiles) {
  EXPECT_TRUE(LoadCluster("cpu:2").ok());
  EXPECT_EQ(LoadCluster("cpu:0").status().code(), absl::StatusCode::kInvalidArgument);
  const auto missing = LoadCluster("no/such/file.json");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("no file of that name can be read"));
  const auto path = std::filesystem::temp_directory_path() /
                    ("cluster_json_test." + std::to_string(getpid()) + ".json");
  std::ofstream(path) << kShort;
  const auto cluster = LoadCluster(path.string());
  std::filesystem::remove(path);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->size(), 8);
  EXPECT_FALSE(LoadCluster(std::filesystem::temp_directory_path().string()).ok());
}

}  // namespace
}  // namespace stagewright
