#include "planner_service/front_door/check_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "common/cost/analytic.h"
#include "planner_service/front_door/front_door.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Graph Layers() {
  testing::GraphBuilder build("layers");
  Argument x = build.Feature("x", {64});
  for (int i = 0; i < 3; ++i) x = build.Linear(x, 64, 64);
  build.Loss(x, {64});
  return build.Build();
}

absl::Status Check(const Graph& graph, const Cluster& cluster) {
  return CheckTimes(graph, cluster, *MakeAnalyticCostModel(graph), 32);
}

Cluster With(void (*spoil)(ClusterData&)) {
  ClusterData data = testing::FlatCluster(2).data();
  spoil(data);
  return Cluster::Create(std::move(data)).value();
}

TEST(CheckTimesTest, OrdinaryStepsPass) {
  EXPECT_EQ(Check(Layers(), testing::FlatCluster(2)), absl::OkStatus());
}

// Rates with which the time of a step is no number of nanoseconds any more.
const std::vector<std::pair<const char*, void (*)(ClusterData&)>>& Absurd() {
  static const auto* const absurd = new std::vector<std::pair<const char*, void (*)(ClusterData&)>>{
      {"flops", [](ClusterData& c) { c.kinds[0].flops_per_second = 1e-9; }},
      {"no flops", [](ClusterData& c) { c.kinds[0].flops_per_second = 5e-324; }},
      {"bytes", [](ClusterData& c) { c.kinds[0].memory_bytes_per_second = 1e-9; }},
      {"efficiency", [](ClusterData& c) { c.kinds[0].half_efficiency_flops = 1e308; }},
      {"link", [](ClusterData& c) { c.links[0].bytes_per_second = 1e-9; }}};
  return *absurd;
}

TEST(CheckTimesTest, NamesKindsAndLinksThatAreTooSlow) {
  const Graph graph = Layers();
  for (const auto& [what, spoil] : Absurd()) {
    SCOPED_TRACE(what);
    const absl::Status status = Check(graph, With(spoil));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cluster: "), HasSubstr(" years")));
    if (std::string(what) == "link") {
      EXPECT_THAT(std::string(status.message()), HasSubstr("over link \""));
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr("on a device of kind \""));
    }
  }
}

TEST(CheckTimesTest, FixedCostsCount) {
  const Graph graph = Layers();
  const auto costs = MakeAnalyticCostModel(graph);
  const Cluster cluster = With([](ClusterData& c) { c.kinds[0].pass_overhead = 3600 * kSecond; });
  EXPECT_EQ(CheckTimes(graph, cluster, *costs, 32), absl::OkStatus());
  EXPECT_THAT(std::string(CheckTimes(graph, cluster, *costs, int64_t{1} << 20).message()),
              HasSubstr("updates and fixed costs"));
}

TEST(CheckTimesTest, MeasuredTimesAreBoundedToo) {
  const Nanos most = Nanos(int64_t{1} << 50);
  const Graph graph = testing::ProfiledChain(3, {most, most, 0, 0, {}});
  EXPECT_THAT(std::string(Check(graph, testing::FlatCluster(1)).message()),
              HasSubstr("node \"n0\" alone"));
}

// No planner may see such times: sums of them are no times.
TEST(CheckTimesTest, EveryPlannerRefusesThem) {
  const Graph graph = Layers();
  for (const PlannerInfo& planner : ListPlanners()) {
    for (const auto& [what, spoil] : Absurd()) {
      SCOPED_TRACE(planner.name + std::string(" ") + what);
      const Cluster cluster = With(spoil);
      PlanRequest request;
      request.graph = &graph;
      request.cluster = &cluster;
      request.mini_batch = 32;
      request.planner = planner.name;
      SearchContext context;
      EXPECT_EQ(SolvePlan(request, context).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace stagewright
