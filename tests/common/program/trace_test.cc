// Hand-made traces; lower_property_test.cc has random ones.
#include "common/program/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/lowering/lower.h"
#include "common/program/unroll.h"
#include "tests/support/fake_driver.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/random.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using testing::MakeStages;

class CheckTraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    trace_ = testing::RunWithRandomDelays(program_, rng_, 10).trace;
    ASSERT_EQ(CheckTrace(program_, trace_), absl::OkStatus());
  }

  TraceEvent& At(int32_t device, const std::string& action) {
    for (TraceEvent& event : trace_) {
      if (event.device == DeviceId(device) && ToString(event.action) == action) return event;
    }
    ADD_FAILURE() << action;
    return trace_.front();
  }

  void ExpectBroken(const std::string& pattern) {
    const absl::Status status = CheckTrace(program_, trace_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::MatchesRegex(pattern));
  }

  const Graph graph_ = ChainGraph(2);
  const testing::FixedCosts costs_{100, 7, graph_};
  const Program program_ =
      *Lower(graph_, MakeStages(graph_, 4, {{{0}, {0, 1}, 2}, {{1, 2}, {2}, 2}}), costs_, {});
  testing::Rng rng_{5};
  std::vector<TraceEvent> trace_;
};

TEST_F(CheckTraceTest, NamesWhatIsMissingOrTooMuch) {
  trace_.push_back(At(0, "OS0"));
  ExpectBroken("device 0, step 0: OS0 is not in the program or there too often");
  trace_.pop_back();
  trace_.push_back({DeviceId(7), *ParseAction("F0[0,1)"), 0, 0, 1});
  ExpectBroken("device 7, step 0: F0\\[0,1\\): the device is not in the program");
  trace_.pop_back();
  trace_.push_back({DeviceId(2), *ParseAction("AR0@0"), 0, 0, 1});
  ExpectBroken("device 2, step 0: AR0@0 is not in the program");
  trace_.pop_back();
  std::erase_if(trace_, [](const TraceEvent& event) { return ToString(event.action) == "OS1"; });
  ExpectBroken("device 2, step 0: OS1 is missing");
}

TEST_F(CheckTraceTest, NamesActionsOutOfOrder) {
  std::swap(At(2, "F1[0,2)").action, At(2, "B1[0,2)").action);
  ExpectBroken("device 2, step 0: B1.* ran where F1\\[0,2\\) was due");
}

TEST_F(CheckTraceTest, NamesOverlapAndNegativeDurations) {
  At(2, "B1[0,2)").start = At(2, "F1[0,2)").end - 1;
  ExpectBroken("device 2, step 0: B1.* overlaps F1.* of the same lane");
  At(2, "B1[0,2)").end = At(2, "B1[0,2)").start - 1;
  ExpectBroken("device 2, step 0: B1.* ends before it starts");
}

TEST_F(CheckTraceTest, NamesWaitsThatWereIgnored) {
  // The first receive of the device may start at once and has no other action before it.
  TraceEvent& forward = At(2, "F1[0,2)");
  forward.start = At(2, "RA1[0,1)@0").end - 1;
  forward.start = std::min(forward.start, At(2, "RA1[1,2)@1").end - 1);
  ExpectBroken("device 2, step 0: F1.* did not wait for RA1.*");
}

TEST_F(CheckTraceTest, NamesReceivesBeforeTheirSend) {
  TraceEvent& receive = At(2, "RA1[0,1)@0");
  receive.end = At(0, "SA0[0,1)@0").start - 1;
  receive.start = std::min(receive.start, receive.end);
  ExpectBroken("device 2, step 0: RA1\\[0,1\\)@0 .* ended before SA0\\[0,1\\)@0 .* device 0");
}

TEST_F(CheckTraceTest, NamesAllReducesThatDidNotMeet) {
  // Device 0 ends alone; device 1 starts, and steps, much later.
  const Nanos late = At(0, "AR0@0").end + 1;
  At(1, "AR0@0").start = late;
  At(1, "AR0@0").end = late + 5;
  At(1, "OS0").start = At(1, "OS0").end = late + 10;
  ExpectBroken("device 0, step 0: AR0@0 .* ended before AR0@0 .* started on device 1");
}

TEST_F(CheckTraceTest, ChecksEveryStep) {
  std::vector<TraceEvent> second = trace_;
  for (TraceEvent& event : second) {
    event.step = 1;
    event.start += 100'000;
    event.end += 100'000;
  }
  second.pop_back();
  trace_.insert(trace_.end(), second.begin(), second.end());
  ExpectBroken("device ., step 1: .* is missing");
}

TEST_F(CheckTraceTest, AcceptsWorkThatTakesNoTime) {
  trace_ = testing::RunWithRandomDelays(program_, rng_, 1).trace;
  for (TraceEvent& event : trace_) event.start = event.end = 42;
  std::reverse(trace_.begin(), trace_.end());
  EXPECT_EQ(CheckTrace(program_, trace_), absl::OkStatus());
}

TEST(CheckTraceOfARun, SectionsFollowEachOther) {
  const Graph graph = testing::ChainGraph(3);
  Strategy strategy = testing::MakeStages(graph, 6, {{{0}, {0}}, {{1}, {1}}, {{2, 3}, {2}}});
  strategy.asynchronous = true;
  const auto program = Lower(graph, strategy, testing::FixedCosts(100, 7, graph), {});
  ASSERT_EQ(program.status(), absl::OkStatus());
  testing::Rng rng(3);
  constexpr int64_t kSteps = 3;
  std::vector<TraceEvent> trace =
      testing::RunWithRandomDelays(Unroll(*program, kSteps), rng, 20).trace;
  // In the steps whose samples they have: as good as in the sections that they come from.
  for (TraceEvent& event : trace) {
    SampleRange& samples = event.action.samples;
    event.step = static_cast<int32_t>(5 + samples.begin / program->mini_batch);
    const int64_t before = samples.begin / program->mini_batch * program->mini_batch;
    if (!samples.empty()) samples = {samples.begin - before, samples.end - before};
  }
  EXPECT_EQ(CheckTrace(*program, trace), absl::OkStatus());
  trace.erase(trace.begin() + static_cast<std::ptrdiff_t>(trace.size() / 2));
  EXPECT_EQ(CheckTrace(*program, trace).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ChromeTrace, HasAProcessPerLabelAndDeviceAndAThreadPerKindOfLane) {
  const std::vector<TraceEvent> events = {{DeviceId(0), *ParseAction("F0[0,2)"), 3, 1500, 4000},
                                          {DeviceId(1), *ParseAction("SA0[0,2)@0"), 3, 4000, 4001}};
  const auto json = nlohmann::json::parse(ChromeTrace(
      {{"predicted", events}, {"measured \"1\"", events}}, {"node0/gpu0", "node0/gpu1"}));
  std::vector<std::string> names;
  int complete = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "process_name")
      names.push_back(event.at("args").at("name"));
    if (event.at("ph") == "X" && complete++ == 0) {
      EXPECT_EQ(event.at("name"), "F0[0,2)");
      EXPECT_EQ(event.at("ts"), 1.5);
      EXPECT_EQ(event.at("dur"), 2.5);
      EXPECT_EQ(event.at("args").at("step"), 3);
    }
  }
  EXPECT_EQ(complete, 4);
  EXPECT_THAT(names,
              ::testing::ElementsAre("predicted: node0/gpu0", "predicted: node0/gpu1",
                                     "measured \"1\": node0/gpu0", "measured \"1\": node0/gpu1"));
}

}  // namespace
}  // namespace stagewright
