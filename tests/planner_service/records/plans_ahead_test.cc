#include "planner_service/records/plans_ahead.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/base/check.h"

namespace stagewright {
namespace {

Cluster Two(const std::string& prefix, Bytes memory = Bytes(1 << 30)) {
  ClusterData data;
  data.name = prefix;
  data.kinds.push_back({.name = "cpu", .flops_per_second = 1e9, .memory_bytes_per_second = 1e10});
  for (const char* number : {"0", "1"}) data.devices.push_back({prefix + number, 0, 0, memory});
  data.links.push_back({prefix + "link", Nanos(100), 1e9});
  data.routes = {{}, {0}, {0}, {}};
  auto cluster = Cluster::Create(std::move(data));
  CHECK(cluster.ok());
  return *std::move(cluster);
}

OperatorProfile Profile(int64_t nanos, const std::string& job = "") {
  OperatorProfile profile;
  MeasuredOperator& measured = profile.devices[{"cpu", "torch"}]["linear"];
  measured = {"2026-11-22", {{.samples = 1, .forward = Nanos(nanos)}}, job};
  return profile;
}

TEST(PlanSourceTest, IsWhatThePlanDependsOnAndNoNames) {
  const PlanSource source(Two("a"), Profile(5));
  EXPECT_EQ(source, PlanSource(Two("b"), Profile(5)));
  EXPECT_NE(source, PlanSource(Two("a", Bytes(1 << 20)), Profile(5)));
  EXPECT_NE(source, PlanSource(Two("a"), Profile(6)));
}

TEST(PlanSourceTest, WhatJobsLeaveBehindDoesNotCount) {
  EXPECT_EQ(PlanSource(Two("a"), Profile(5, "jobs/1")), PlanSource(Two("a"), Profile(6, "jobs/2")));
  EXPECT_NE(PlanSource(Two("a"), Profile(5, "jobs/1")), PlanSource(Two("a"), Profile(5)));
}

TEST(PlansAheadTest, AreDroppedWhenNobodyMayNeedThem) {
  PlansAhead ahead;
  const PlanSource first(Two("a"), Profile(5)), second(Two("a"), Profile(6));
  const auto plan = std::make_shared<const JobPlan>();
  EXPECT_TRUE(ahead.Lacks(first));
  ahead.Keep(first, plan);
  ahead.Keep(second, nullptr);
  EXPECT_EQ(ahead.Find(first), plan);
  EXPECT_EQ(ahead.Find(second), nullptr);
  ahead.EndRound();
  EXPECT_FALSE(ahead.Lacks(first));
  ahead.EndRound();
  EXPECT_EQ(ahead.Find(first), plan);
  EXPECT_TRUE(ahead.Lacks(second));  // It was not looked at in that round.
  ahead.EndRound();
  EXPECT_EQ(ahead.Find(first), nullptr);
}

TEST(PlansAheadTest, AreFew) {
  PlansAhead ahead;
  for (size_t i = 0; i < PlansAhead::kMost; ++i) {
    const PlanSource source(Two("a"), Profile(static_cast<int64_t>(i)));
    EXPECT_TRUE(ahead.Lacks(source));
    ahead.Keep(source, nullptr);
  }
  EXPECT_FALSE(ahead.Lacks(PlanSource(Two("a"), Profile(1000))));
}

}  // namespace
}  // namespace stagewright
