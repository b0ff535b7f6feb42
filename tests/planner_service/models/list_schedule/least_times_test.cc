#include "planner_service/models/list_schedule/least_times.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/topology/uniform.h"
#include "planner_service/models/list_schedule/list_schedule.h"
#include "planner_service/search/local_search.h"
#include "tests/planner_service/models/list_schedule/random_task_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using testing::SearchCase;

// For three stages of one operator on a device each, six micro-batches, passes of 1 and 2 us, and
// messages of so many bytes.
LeastTimes OfChain(const std::string& links, Bytes bytes, bool split) {
  const SearchCase c(testing::ProfiledChain(3, {1000, 2000, bytes, 1000, {}}),
                     *UniformPreset("uniform:3," + links), 6);
  Draft draft;
  for (int32_t s = 0; s < 3; ++s) draft.stages.push_back({{s}, {s}, false});
  LeastTimes least;
  SetLeastTimes(MakeTaskGraph(OperatorCosts(c.problem), draft, 1), split, least);
  return least;
}

TEST(LeastTimesTest, AChainTakesTheWorkOfADeviceAndTheWayThereAndBack) {
  EXPECT_EQ(OfChain("latency=0", 0, false).step, (6 + 3 - 1) * 3000);
}

TEST(LeastTimesTest, BehindAPassComesItsChain) {
  const LeastTimes least = OfChain("latency=1e-6", 0, false);
  EXPECT_EQ(least.backward_left, (std::vector<Nanos>{2000, 5000, 8000}));
  EXPECT_EQ(least.forward_left, (std::vector<Nanos>{13000, 11000, 9000}));
  EXPECT_EQ(least.device_left, (std::vector<Nanos>{0, 3000, 6000}));
}

TEST(LeastTimesTest, AWeightHalfKeepsNobodyWaiting) {
  const LeastTimes least = OfChain("latency=0", 0, true);
  EXPECT_EQ(least.device_left, (std::vector<Nanos>{0, 0, 0}));
  EXPECT_EQ(least.step, 2 * 1000 + 6 * 3000);
}

TEST(LeastTimesTest, ALinkThatCarriesMostBinds) {
  // A message takes a millisecond.
  const LeastTimes least = OfChain("latency=0,bandwidth=1e6", 1000, false);
  EXPECT_EQ(*std::max_element(least.link_work.begin(), least.link_work.end()), 6 * kMillisecond);
  // Between the last two devices: one message before six of them, and two behind.
  EXPECT_GE(least.step, 9 * kMillisecond);
  EXPECT_LT(least.step, 10 * kMillisecond);
}

TEST(LeastTimesTest, NoScheduleTakesLess) {
  testing::Rng random(3);
  int64_t schedules = 0;
  double tightness = 0;
  testing::ForRandomTaskGraphs(random, [&](const TaskGraph& graph) {
    ListScheduler scheduler;
    LeastTimes least;
    for (const ListRule& rule : ListRules(/*split_backward=*/true)) {
      const ListResult result = scheduler.Run(graph, rule, false);
      if (!result.fits) continue;
      SetLeastTimes(graph, rule.split, least);
      ASSERT_LE(least.step, result.step_time);
      tightness += static_cast<double>(least.step) / static_cast<double>(result.step_time);
      ++schedules;
    }
  });
  EXPECT_GT(schedules, 10'000);
  EXPECT_GT(tightness / static_cast<double>(schedules), 0.6);
}

}  // namespace
}  // namespace stagewright
