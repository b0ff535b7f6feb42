// Clusters whose devices, memories or links differ: a planner must make something of that, and is
// never worse than if it had been told that all are equal.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "common/cost/parameters.h"
#include "tests/conformance/planner_suite.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;
using testing::RatedProfileCosts;

// Planners that search views of the cluster, and the exact one. A planner joins the suite
// by its name here.
constexpr const char* kNames[] = {"pipedream", "piper",     "dapple",     "gpipe",
                                  "exact",     "graphpipe", "sequential", "pfeife"};

std::vector<RegisteredPlanner> Planners() {
  std::vector<RegisteredPlanner> planners;
  for (const RegisteredPlanner& planner : RegisteredPlanners()) {
    if (std::find(std::begin(kNames), std::end(kNames), std::string(planner.name)) !=
        std::end(kNames)) {
      planners.push_back(planner);
    }
  }
  return planners;
}

// The cluster as if all devices and links were as the fastest.
Cluster Equal(const Cluster& cluster) {
  ClusterData data = cluster.data();
  int32_t fastest = data.devices[0].kind;
  for (const Device& device : data.devices) {
    if (data.kinds[device.kind].flops_per_second > data.kinds[fastest].flops_per_second) {
      fastest = device.kind;
    }
  }
  data.kinds = {data.kinds[fastest]};
  for (Device& device : data.devices) device.kind = 0;
  double rate = 0;
  Nanos latency = std::numeric_limits<Nanos>::max();
  for (const Link& link : data.links) {
    rate = std::max(rate, link.bytes_per_second);
    latency = std::min(latency, link.latency);
  }
  for (Link& link : data.links) {
    link.bytes_per_second = rate;
    link.latency = latency;
  }
  return *Cluster::Create(data);
}

// Devices 1 and 2 have 1 / `factor` of the speed of devices 0 and 3.
Cluster TwoKinds(double factor) {
  ClusterData data = FlatCluster(4, 16 * kGiB, 1000, 1e10).data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "slow";
  data.kinds[1].flops_per_second /= factor;
  data.kinds[1].memory_bytes_per_second /= factor;
  data.devices[1].kind = data.devices[2].kind = 1;
  return *Cluster::Create(data);
}

// Devices 0 and 2 are near each other, and so are 1 and 3; messages between the pairs are slow.
Cluster SlowLinks(double slow) {
  ClusterData data;
  data.name = "pairs";
  data.kinds = FlatCluster(1).data().kinds;
  for (int32_t a = 0; a < 4; ++a) {
    data.devices.push_back({"d" + std::to_string(a), 0, 0, 16 * kGiB});
    for (int32_t b = 0; b < 4; ++b) {
      data.routes.emplace_back();
      if (a == b) continue;
      data.routes.back() = {static_cast<int32_t>(data.links.size())};
      data.links.push_back(
          {"l" + std::to_string(a) + std::to_string(b), 1000, a % 2 == b % 2 ? 1e10 : slow});
    }
  }
  return *Cluster::Create(data);
}

class PlannerUnevenTest : public PlannerSuite {
 protected:
  // How many times as long the plan takes that was made for equal devices and links; nothing if
  // that plan does not fit, or neither is there.
  static std::optional<double> Gain(PlanRequest request) {
    const PlanResponse aware = Solve(request);
    const Cluster& real = *request.cluster;
    const Cluster told = Equal(real);
    request.cluster = &told;
    const PlanResponse blind = Solve(request);
    request.cluster = &real;
    if (!blind.best) return std::nullopt;
    const auto judged = JudgeStrategy(request, blind.best->plan.strategy, "told");
    if (!judged.ok()) return std::nullopt;
    EXPECT_TRUE(aware.best) << aware.reason;
    if (!aware.best) return std::nullopt;
    return static_cast<double>(judged->evaluation.iteration_time) /
           static_cast<double>(aware.best->evaluation.iteration_time);
  }
};

TEST_P(PlannerUnevenTest, SlowDevicesAreNotTakenForFastOnes) {
  const Graph graph = ProfiledChain(12, {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}});
  const RatedProfileCosts costs(graph);
  const Cluster cluster = TwoKinds(4);
  PlanRequest request = Request(graph, cluster, 16);
  request.costs = &costs;
  const auto gain = Gain(request);
  ASSERT_TRUE(gain);
  EXPECT_GT(*gain, 1.05);
}

TEST_P(PlannerUnevenTest, SlowLinksAreCrossedRarely) {
  const Graph graph = ProfiledChain(12, {kMillisecond, 2 * kMillisecond, 4 * kMiB, kMiB, {}});
  const Cluster cluster = SlowLinks(2e8);
  const auto gain = Gain(Request(graph, cluster, 16));
  ASSERT_TRUE(gain);
  EXPECT_GT(*gain, 1.05);
}

TEST_P(PlannerUnevenTest, NoPlanIsWorseThanOneForEqualDevices) {
  testing::Rng random(77);
  int compared = 0;
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    const Graph graph = testing::RandomProfile(random, 4 + round);
    const RatedProfileCosts costs(graph);
    const Cluster cluster = round % 2 == 0 ? TwoKinds(1.5 + round) : SlowLinks(1e9 / (1 + round));
    PlanRequest request = Request(graph, cluster, 8);
    request.costs = &costs;
    request.options.allow_replicas = round % 3 > 0;
    const auto gain = Gain(request);
    if (!gain) continue;
    ++compared;
    EXPECT_GE(*gain, 1 - 1e-9);
  }
  EXPECT_GT(compared, 6);
}

TEST_P(PlannerUnevenTest, OneLargeDeviceIsEnough) {
  const Graph graph = ProfiledChain(24, {kMillisecond, 2 * kMillisecond, kMiB, 32 * kMiB, {}});
  for (int32_t large : {0, 1}) {
    SCOPED_TRACE(large);
    ClusterData data = FlatCluster(2).data();
    data.devices[1 - large].memory = 100'000'000;
    const Cluster cluster = *Cluster::Create(data);
    MustPlan(graph, cluster, 8);
    PlanRequest request = Request(graph, cluster, 8);
    request.options.allow_replicas = false;
    EXPECT_TRUE(Solve(request).best);
  }
}

// No chain of two stages fits, but the first and the last node together do.
TEST_P(PlannerUnevenTest, WhatAnotherPlannerMayFitIsNotCalledInfeasible) {
  std::vector<testing::Work> nodes(3, {kMillisecond, kMillisecond, kKiB, 9 * kGiB / 10, {}});
  nodes[1] = {kMillisecond, kMillisecond, kKiB, 12 * kGiB / 10, {0}};
  nodes[2].after = {1};
  const Graph graph = testing::ProfiledGraph(nodes);
  const Cluster cluster = FlatCluster(2, 4 * kGiB);
  PlanRequest request = Request(graph, cluster, 8);
  request.optimizer = Optimizer::kSgd;
  const PlanResponse response = Solve(request);
  EXPECT_FALSE(response.best);
  EXPECT_EQ(response.termination, Termination::kLimit);
  EXPECT_THAT(response.reason, HasSubstr("does not prove"));
  EXPECT_THAT(response.reason, HasSubstr("need 6 GiB"));
}

INSTANTIATE_TEST_SUITE_P(Uneven, PlannerUnevenTest, ::testing::ValuesIn(Planners()), SuiteName);

}  // namespace
}  // namespace stagewright
