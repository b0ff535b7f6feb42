#include "planner_service/simulator/measured_durations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/lowering/lower.h"
#include "planner_service/simulator/model_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::MakeStrategy;
using testing::ProfiledGraph;

class MeasuredDurationsTest : public ::testing::Test {
 protected:
  MeasuredDurationsTest()
      : graph_(ProfiledGraph({{3, 5, 100, 64, {}}, {4, 6, 0, 64, {0}}})),
        cluster_(FlatCluster(3, kGiB, 11, 1e9)),
        costs_(MakeAnalyticCostModel(graph_)) {
    const Strategy strategy = MakeStrategy(graph_, {{0}, {1}}, {{0}, {1, 2}}, 8, 4);
    program_ = Lower(graph_, strategy, *costs_, {}).value();
    const auto durations =
        MakeModelDurations(graph_, program_, cluster_, *costs_, Optimizer::kAdam);
    simulation_ = Simulate(program_, *durations, {.timeline = true}).value();
  }
  Graph graph_;
  Cluster cluster_;
  std::unique_ptr<CostModel> costs_;
  Program program_;
  Simulation simulation_;
};

TEST_F(MeasuredDurationsTest, UsesTheStepAskedFor) {
  std::vector<TraceEvent> trace = simulation_.timeline;
  for (TraceEvent event : simulation_.timeline) {
    event.step = 1;
    event.start = 1000 + 2 * event.start;  // Twice as slow, later.
    event.end = 1000 + 2 * event.end;
    trace.push_back(event);
  }
  const auto first = MakeMeasuredDurations(program_, trace, 0);
  const auto second = MakeMeasuredDurations(program_, trace, 1);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Simulate(program_, **first, {})->step_time, simulation_.step_time);
  EXPECT_EQ(Simulate(program_, **second, {})->step_time, 2 * simulation_.step_time);
}

TEST_F(MeasuredDurationsTest, NamesWhatIsMissing) {
  for (size_t gone = 0; gone < simulation_.timeline.size(); ++gone) {
    std::vector<TraceEvent> trace = simulation_.timeline;
    const TraceEvent event = trace[gone];
    trace.erase(trace.begin() + static_cast<int64_t>(gone));
    const absl::Status status = MakeMeasuredDurations(program_, trace, 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("step 0"), HasSubstr(ToString(event.action)),
                      HasSubstr(absl::StrCat("device ", event.device.value()))));
  }
  EXPECT_FALSE(MakeMeasuredDurations(program_, simulation_.timeline, 3).ok());
}

}  // namespace
}  // namespace stagewright
