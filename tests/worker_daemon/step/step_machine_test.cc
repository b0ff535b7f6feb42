#include "worker_daemon/step/step_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/program/trace.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMiniBatch = 4;

// "F0[0,4)" and what must end before it, or be reached.
struct Entry {
  std::string action;
  std::vector<int32_t> after;
  std::vector<PassMark> after_marks = {};
};

std::vector<ProgramAction> SectionOf(const std::vector<Entry>& entries) {
  std::vector<ProgramAction> section;
  for (const Entry& entry : entries)
    section.push_back({ParseAction(entry.action).value(), entry.after, 0, 0, entry.after_marks});
  return section;
}

// A program of one device, and its plan as far as a machine reads it.
struct Work {
  Program program;
  DevicePlan plan;

  explicit Work(const std::vector<Entry>& body, const std::vector<Entry>& prologue = {},
                const std::vector<Entry>& epilogue = {}) {
    program.mini_batch = kMiniBatch;
    program.asynchronous = !prologue.empty();
    program.devices.push_back(
        {DeviceId(5), 0, SectionOf(prologue), SectionOf(body), SectionOf(epilogue)});
    const DeviceProgram& device = program.devices[0];
    plan.program = &device;
    plan.has_sections = program.asynchronous;
    plan.prologue = Planned(device.prologue);
    plan.body = Planned(device.body);
    plan.epilogue = Planned(device.epilogue);
  }
  Work(const Work&) = delete;

 private:
  SectionPlan Planned(const std::vector<ProgramAction>& section) {
    SectionPlan planned{&section, std::vector<ActionPlan>(section.size()), 0};
    for (const ProgramAction& entry : section) {
      if (IsCompute(entry.action.kind)) ++planned.computes;
      if (entry.action.kind == ActionKind::kAllReduce) plan.reduces = true;
    }
    return planned;
  }
};

// Writes down what is to be done. Transfers end at once, but for the one that is `held`.
class FakeEffects : public StepEffects {
 public:
  absl::Status Compute(const StepAction& action) override {
    Note(action);
    return on_compute ? on_compute(action) : absl::OkStatus();
  }
  void StartTransfers(const std::vector<StepAction>& actions) override {
    for (const StepAction& action : actions) {
      Note(action);
      if (ToString(action.action()) == held) {
        waiting = action;
      } else {
        machine->End(action, absl::OkStatus());
      }
    }
  }
  void MoveTransfers(absl::FunctionRef<bool()> ready) override {
    if (on_wait && !ready()) on_wait(ready);
  }
  absl::Status RunCollective(const StepAction& action) override {
    Note(action);
    return absl::OkStatus();
  }
  void AbortTransfers(const absl::Status& status) override {
    aborts.push_back(status);
    // As a transport: what is under way ends soon, from a thread of its own.
    if (waiting.has_value())
      thread = std::thread([this, status] { machine->End(*waiting, status); });
  }
  std::string Details(const StepAction&) const override { return " (3 of the data)"; }

  ~FakeEffects() override {
    if (thread.joinable()) thread.join();
  }

  std::vector<std::string> done() {
    absl::MutexLock lock(&mutex);
    return log;
  }

  StepMachine* machine = nullptr;
  std::function<absl::Status(const StepAction&)> on_compute;
  std::function<void(absl::FunctionRef<bool()>)> on_wait;
  std::string held;
  std::optional<StepAction> waiting;
  std::vector<absl::Status> aborts;

 private:
  void Note(const StepAction& action) {
    absl::MutexLock lock(&mutex);
    log.push_back(absl::StrCat(ToString(action.action()), " of ", action.samples.step));
  }

  absl::Mutex mutex;
  std::vector<std::string> log;
  std::thread thread;
};

class StepMachineTest : public ::testing::Test {
 protected:
  void Make(const std::vector<Entry>& body, const std::vector<Entry>& prologue = {},
            const std::vector<Entry>& epilogue = {}) {
    work_.emplace(body, prologue, epilogue);
    machine_.emplace(work_->program, work_->plan, effects_);
    effects_.machine = &*machine_;
  }

  absl::Status RunStep(const StepOfJob& step) {
    machine_->Run(step);
    return machine_->AwaitEnd();
  }

  FakeEffects effects_;
  std::optional<Work> work_;
  std::optional<StepMachine> machine_;
};

// The pass ends only when the sum that it lets start by a mark has run.
TEST_F(StepMachineTest, ASumRunsWithinTheBackwardPassThatReachesItsMark) {
  Make({{"B0[0,4)", {}}, {"AR0@0", {}, {{0, 3}}}, {"AR0@1", {}, {{0, 1}}}, {"OS0", {1, 2}}});
  effects_.on_compute = [&](const StepAction& pass) {
    if (pass.action().kind != ActionKind::kBackward) return absl::OkStatus();
    machine_->Reach(pass, 3);
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (effects_.done().size() < 2 && absl::Now() < deadline)
      absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  ASSERT_EQ(RunStep({}), absl::OkStatus());
  EXPECT_THAT(effects_.done(), ElementsAre("B0[0,4) of 0", "AR0@0 of 0", "AR0@1 of 0", "OS0 of 0"));
  const StepTrace trace = machine_->TakeTrace();
  ASSERT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(ToString(trace.events[0].action), "AR0@0") << "it ended first";
  EXPECT_GE(trace.events[0].start, trace.events[1].start);
  EXPECT_EQ(CheckTrace(work_->program, trace.events), absl::OkStatus());
}

TEST_F(StepMachineTest, RunsWhatIsReadyInTheOrderOfItsLane) {
  Make({{"RA0[0,4)@0", {}}, {"F0[0,4)", {0}}, {"B0[0,4)", {1}}, {"AR0@0", {2}}, {"OS0", {3}}});
  ASSERT_TRUE(RunStep({.number = 7}).ok());
  EXPECT_THAT(effects_.done(), ElementsAre("RA0[0,4)@0 of 7", "F0[0,4) of 7", "B0[0,4) of 7",
                                           "AR0@0 of 7", "OS0 of 7"));
  const StepTrace trace = machine_->TakeTrace();
  ASSERT_EQ(trace.events.size(), 5);
  for (const TraceEvent& event : trace.events) {
    EXPECT_EQ(event.device, DeviceId(5));
    EXPECT_EQ(event.step, 7);
    EXPECT_LE(event.start, event.end);
  }
  EXPECT_TRUE(machine_->TakeTrace().events.empty());
}

TEST_F(StepMachineTest, ComputesWhileATransferIsUnderWay) {
  Make({{"F0[0,2)", {}}, {"SA0[0,2)@0", {0}}, {"F0[2,4)", {}}});
  effects_.held = "SA0[0,2)@0";
  effects_.on_compute = [&](const StepAction& action) {
    // The second pass begins before the send has ended.
    if (action.samples.range.begin == 2) machine_->End(*effects_.waiting, absl::OkStatus());
    return absl::OkStatus();
  };
  ASSERT_TRUE(RunStep({.number = 0}).ok());
  EXPECT_THAT(effects_.done(), ElementsAre("F0[0,2) of 0", "SA0[0,2)@0 of 0", "F0[2,4) of 0"));
}

TEST_F(StepMachineTest, TheLaneMovesTransfersWhileItWaits) {
  for (const std::string held : {"RA0[0,4)@0", "SA0[0,4)@0"}) {
    Make({{"RA0[0,4)@0", {}}, {"F0[0,4)", {0}}, {"SA0[0,4)@0", {1}}});
    effects_.held = held;
    effects_.on_wait = [&](absl::FunctionRef<bool()> ready) {
      machine_->End(*effects_.waiting, absl::OkStatus());
      EXPECT_TRUE(ready());
    };
    EXPECT_EQ(RunStep({.deadline = absl::Now() + absl::Seconds(60)}), absl::OkStatus()) << held;
  }
}

TEST_F(StepMachineTest, AFailureNamesDeviceStepAndActionAndEndsTheStep) {
  Make({{"F0[0,4)", {}}, {"B0[0,4)", {0}}});
  effects_.on_compute = [](const StepAction&) { return absl::InternalError("broken"); };
  const absl::Status status = RunStep({.number = 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(),
            "device 5, step 2, the forward pass of stage 0 on samples 0 to 3 (3 of the data): "
            "broken");
  EXPECT_THAT(effects_.done(), ElementsAre("F0[0,4) of 2"));
  EXPECT_THAT(effects_.aborts, ElementsAre(status));
  EXPECT_EQ(RunStep({.number = 3}), status);
  EXPECT_EQ(effects_.done().size(), 1);
}

TEST_F(StepMachineTest, AnAbortInTheMiddleEndsTheStep) {
  Make({{"F0[0,4)", {}}, {"B0[0,4)", {0}}});
  effects_.on_compute = [&](const StepAction&) {
    machine_->Abort(absl::CancelledError("enough"));
    return absl::OkStatus();
  };
  EXPECT_EQ(RunStep({.number = 0}), absl::CancelledError("enough"));
  EXPECT_THAT(effects_.done(), ElementsAre("F0[0,4) of 0"));
  EXPECT_FALSE(machine_->in_run());
}

TEST_F(StepMachineTest, AFailureThatShowsLateEndsTheStep) {
  Make({{"F0[0,4)", {}}, {"B0[0,4)", {0}}});
  StepAction first;
  effects_.on_compute = [&](const StepAction& action) {
    if (action.action().kind == ActionKind::kForward) first = action;
    if (action.action().kind == ActionKind::kBackward)
      machine_->Fail(first, absl::FailedPreconditionError("no loss"));
    return absl::OkStatus();
  };
  const absl::Status status = RunStep({.number = 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status, machine_->failure());
  EXPECT_TRUE(absl::StrContains(status.message(), "the forward pass of stage 0"));
}

TEST_F(StepMachineTest, TheDeadlineSaysWhatWasWaitedFor) {
  Make({{"RA0[0,4)@0", {}}, {"F0[0,4)", {0}}});
  effects_.held = "RA0[0,4)@0";
  const absl::Status status =
      RunStep({.number = 1, .deadline = absl::Now() + absl::Milliseconds(20)});
  EXPECT_EQ(status, absl::DeadlineExceededError(
                        "device 5: step 1 did not finish in time; waiting for receiving "
                        "activations of samples 0 to 3 for stage 0"));
  EXPECT_THAT(effects_.aborts, ElementsAre(status));
}

// One stage with two micro-batches in flight: the body's forward pass is one of the next step.
class AsynchronousMachineTest : public StepMachineTest {
 protected:
  AsynchronousMachineTest() {
    Make({{"B0[0,4)", {}}, {"OS0", {0}}, {"F0[4,8)", {1}}}, {{"F0[0,4)", {}}},
         {{"B0[0,4)", {}}, {"OS0", {0}}});
  }
};

TEST_F(AsynchronousMachineTest, SectionsFollowEachOtherWithoutABarrier) {
  ASSERT_TRUE(RunStep({.number = 3, .steps_left = 2}).ok());
  EXPECT_TRUE(machine_->in_run());
  EXPECT_THAT(effects_.done(),
              ElementsAre("F0[0,4) of 3", "B0[0,4) of 3", "OS0 of 3", "F0[4,8) of 4"));
  ASSERT_TRUE(RunStep({.number = 4, .steps_left = 1}).ok());
  ASSERT_TRUE(RunStep({.number = 5, .steps_left = 0}).ok());
  EXPECT_FALSE(machine_->in_run());
  EXPECT_THAT(effects_.done(),
              ElementsAre("F0[0,4) of 3", "B0[0,4) of 3", "OS0 of 3", "F0[4,8) of 4",
                          "B0[0,4) of 4", "OS0 of 4", "F0[4,8) of 5", "B0[0,4) of 5", "OS0 of 5"));
  EXPECT_EQ(CheckTrace(work_->program, machine_->TakeTrace().events), absl::OkStatus());
}

TEST_F(AsynchronousMachineTest, OnlyTheNextStepMayFollow) {
  ASSERT_TRUE(RunStep({.number = 3, .steps_left = 2}).ok());
  EXPECT_TRUE(machine_->MayRun({.number = 4, .steps_left = 1}));
  EXPECT_FALSE(machine_->MayRun({.number = 5, .steps_left = 1}));
  EXPECT_FALSE(machine_->MayRun({.number = 4, .steps_left = 2}));
  machine_->Abort(absl::CancelledError("enough"));
  machine_->Run({.number = 4, .steps_left = 1});
  EXPECT_FALSE(machine_->AwaitEnd().ok());
  EXPECT_TRUE(machine_->MayRun({.number = 9}));
}

TEST_F(AsynchronousMachineTest, ARunMayTurnOutShorter) {
  ASSERT_TRUE(RunStep({.number = 3, .steps_left = 7}).ok());
  EXPECT_FALSE(machine_->MayRun({.number = 4, .steps_left = 7}));
  // Its successor's first transfers have begun as those of a step that another one follows.
  EXPECT_FALSE(machine_->MayRun({.number = 4, .steps_left = 0}));
  ASSERT_TRUE(machine_->MayRun({.number = 4, .steps_left = 1}));
  ASSERT_TRUE(RunStep({.number = 4, .steps_left = 1}).ok());
  ASSERT_TRUE(RunStep({.number = 5, .steps_left = 0}).ok());
  EXPECT_FALSE(machine_->in_run());
}

TEST_F(AsynchronousMachineTest, ARunLeftInItsMiddleIsAborted) {
  ASSERT_TRUE(RunStep({.number = 0, .steps_left = 1}).ok());
  EXPECT_THAT(effects_.aborts, IsEmpty());
  machine_.reset();
  EXPECT_THAT(effects_.aborts, ElementsAre(absl::CancelledError("the run was left in its middle")));
}

}  // namespace
}  // namespace stagewright
