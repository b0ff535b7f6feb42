#include "worker_daemon/daemon/run_traces.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

class RunTracesTest : public ::testing::Test {
 protected:
  RunTracesTest() {
    prepare_.add_traced_steps(0);
    prepare_.add_traced_steps(2);
  }

  // What is told of a step of device 1 in a run that begins with step 100.
  v1::Progress Tell(int64_t step, Nanos forward = 10) {
    StepReport report;
    report.step = step;
    report.events.resize(3);
    if (traces_.TimesOperators(step))
      report.operators = {{StageId(2), NodeId(5), 4, 2, 1, forward, 30}};
    v1::Progress progress;
    progress.add_devices();
    traces_.Add(report, 100, DeviceId(1), progress);
    return progress;
  }

  void Ask(int64_t first, int32_t steps, bool operators) {
    v1::TraceSteps message;
    message.set_first_step(first);
    message.set_steps(steps);
    message.set_operators(operators);
    traces_.Ask(message);
  }

  v1::Prepare prepare_;
  RunTraces traces_{prepare_};
};

TEST_F(RunTracesTest, TellsTheStepsThatPrepareNames) {
  EXPECT_EQ(Tell(100).trace_size(), 3);
  EXPECT_EQ(Tell(101).trace_size(), 0);
  EXPECT_EQ(Tell(102).trace_size(), 3);
  EXPECT_EQ(Tell(103).devices(0).operators_size(), 0);
}

TEST_F(RunTracesTest, TellsTheStepsThatAreAskedForAndTheirOperatorsAtTheEnd) {
  Ask(200, 3, /*operators=*/true);
  EXPECT_EQ(Tell(199).trace_size(), 0);
  EXPECT_EQ(Tell(200, 10).devices(0).operators_size(), 0);
  EXPECT_EQ(Tell(201, 20).trace_size(), 3);
  const v1::Progress last = Tell(202, 30);
  EXPECT_EQ(last.trace_size(), 3);
  ASSERT_EQ(last.devices(0).operators_size(), 1);
  const v1::OperatorTime& timed = last.devices(0).operators(0);
  EXPECT_EQ(timed.device(), 1);
  EXPECT_EQ(timed.stage(), 2);
  EXPECT_EQ(timed.node(), 5);
  EXPECT_EQ(timed.samples(), 4);
  EXPECT_EQ(timed.forward_ns(), 12);   // 50 in four passes of the last two steps.
  EXPECT_EQ(timed.backward_ns(), 30);  // 60 in two.
  EXPECT_EQ(Tell(203).trace_size(), 0);
}

TEST_F(RunTracesTest, NobodyCanAskForEndlessSteps) {
  Ask(200, 1 << 30, /*operators=*/true);
  EXPECT_EQ(Tell(200 + RunTraces::kMostSteps - 1).trace_size(), 3);
  EXPECT_EQ(Tell(200 + RunTraces::kMostSteps).trace_size(), 0);
  Ask(300, -5, /*operators=*/false);
  EXPECT_EQ(Tell(300).trace_size(), 0);
  EXPECT_FALSE(traces_.TimesOperators(300));
}

}  // namespace
}  // namespace stagewright
