#include "worker_daemon/effects/input_loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/program/unroll.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int64_t kMiniBatch = 8, kSteps = 4;

// Input, first and last sample of a load, where step 0 has the samples from 0 on, step 1 those
// after them, and so on.
using Named = std::tuple<int, int64_t, int64_t>;

// A first stage that reads "x" and a last one that reads "target", which has the classes of a
// prediction if `classifies`.
Graph SmallGraph(bool classifies) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 16});
  const int target =
      classifies ? make.AddInput("target", {-1}, DType::kInt64) : make.AddInput("target", {-1, 2});
  make.data.inputs[target].role = InputRole::kTarget;
  const int first = make.AddLinear("first", In(x), 16, 4);
  const int tanh = make.AddNode("aten.tanh.default", {Value(first)}, {Meta({-1, 4})});
  const int last = make.AddLinear("last", Value(tanh), 4, 2);
  const int loss =
      classifies
          ? make.AddNode("aten.cross_entropy_loss.default", {Value(last), In(target)}, {Meta({})})
          : make.AddNode("aten.mse_loss.default", {Value(last), In(target)}, {Meta({})});
  return make.Finish(loss, classifies ? last : -1);
}

struct Planned {
  Graph graph;
  std::shared_ptr<const Program> program;
  DevicePlan plan;

  Planned(bool classifies, bool asynchronous, bool recompute, int device, int64_t micro_batch)
      : graph(SmallGraph(classifies)) {
    Strategy strategy = PlanByHand(
        graph, kMiniBatch,
        {{1, micro_batch, 1, recompute}, {static_cast<int>(graph.size()) - 1, micro_batch}});
    strategy.asynchronous = asynchronous;
    auto programs = LowerBoth(graph, strategy);
    EXPECT_TRUE(programs.ok()) << programs.status();
    program = programs->training;
    auto made = MakeDevicePlan(graph, *program, DeviceId(device));
    EXPECT_TRUE(made.ok()) << made.status();
    plan = *std::move(made);
  }

  InputLoads Loads() const { return InputLoads(graph, *program, plan); }
};

std::vector<int64_t> Step(int64_t step) {
  std::vector<int64_t> samples(kMiniBatch);
  std::iota(samples.begin(), samples.end(), step * kMiniBatch);
  return samples;
}

std::vector<Named> Names(const std::vector<InputLoad>& loads) {
  std::vector<Named> names;
  for (const InputLoad& load : loads)
    names.push_back({load.input.value(), load.samples().front(), load.samples().back()});
  return names;
}

TEST(InputLoadsTest, AreThoseOfForwardPassesAndOfTheNextStep) {
  const Planned first(/*classifies=*/false, /*asynchronous=*/false, /*recompute=*/false, 0, 4);
  const std::vector<int64_t> now = Step(0), next = Step(1);
  EXPECT_THAT(Names(first.Loads().From({.samples = now, .next_samples = next}, true)),
              ElementsAre(Named{0, 0, 3}, Named{0, 4, 7}, Named{0, 8, 11}, Named{0, 12, 15}));
  EXPECT_THAT(Names(first.Loads().From({.samples = now}, true)),
              ElementsAre(Named{0, 0, 3}, Named{0, 4, 7}));
  EXPECT_THAT(Names(first.Loads().OfRun(now)), ElementsAre(Named{0, 0, 3}, Named{0, 4, 7}));
}

TEST(InputLoadsTest, AreRepeatedWherePassesLoadAgain) {
  const std::vector<int64_t> now = Step(0);
  const Planned recomputed(false, false, /*recompute=*/true, 0, 4);
  std::vector<Named> loads = Names(recomputed.Loads().OfRun(now));
  EXPECT_EQ(loads.size(), 4u);
  std::sort(loads.begin(), loads.end());
  EXPECT_THAT(loads, ElementsAre(Named{0, 0, 3}, Named{0, 0, 3}, Named{0, 4, 7}, Named{0, 4, 7}));
  // The classes are what the loss and the count of correct predictions take.
  const Planned last(/*classifies=*/true, false, false, 1, 4);
  EXPECT_THAT(Names(last.Loads().OfRun(now)),
              ElementsAre(Named{1, 0, 3}, Named{1, 0, 3}, Named{1, 4, 7}, Named{1, 4, 7}));
}

// A run of steps without a flush: those of the prologue, bodies and the epilogue, each in the step
// in which it runs, and the beginning of the next run.
TEST(InputLoadsTest, FollowTheSectionsOfAsynchronousPrograms) {
  for (const int device : {0, 1}) {
    const Planned planned(false, /*asynchronous=*/true, false, device, 2);
    ASSERT_TRUE(planned.plan.has_sections);
    const DeviceProgram unrolled = Unroll(*planned.plan.program, kMiniBatch, kSteps);
    std::vector<Named> expected;
    for (const ProgramAction& entry : unrolled.body) {
      if (entry.action.kind != ActionKind::kForward) continue;
      expected.push_back({device, entry.action.samples.begin, entry.action.samples.end - 1});
    }
    const std::vector<Named> begin = Names(planned.Loads().OfRun(Step(kSteps)));
    expected.insert(expected.end(), begin.begin(), begin.end());
    size_t passed = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      const std::vector<int64_t> now = Step(step), next = Step(step + 1);
      const auto from = [&](bool knows_next, bool begins) {
        const StepInput input{.samples = now,
                              .steps_left = kSteps - 1 - step,
                              .next_samples = knows_next ? next : std::span<const int64_t>()};
        return Names(planned.Loads().From(input, begins));
      };
      const std::vector<Named> loads = from(true, step == 0);
      ASSERT_LE(passed + loads.size(), expected.size());
      EXPECT_TRUE(std::equal(loads.begin(), loads.end(), expected.begin() + passed)) << step;
      // Where the next step begins in them.
      const size_t begun = planned.plan.prologue.program->empty() || step > 0 ? 0 : begin.size();
      passed += begun;
      for (const ProgramAction& entry :
           step + 1 < kSteps ? *planned.plan.body.program : *planned.plan.epilogue.program)
        passed += entry.action.kind == ActionKind::kForward ? 1 : 0;
    }
    EXPECT_EQ(passed + begin.size(), expected.size());
  }
}

TEST(InputLoadsTest, BuffersHoldWhatIsAheadAndWhatIsTaken) {
  const Planned first(false, false, true, 0, 4);
  EXPECT_THAT(first.Loads().Buffers(first.graph, 2), ElementsAre(Pair(Bytes(4 * 16 * 8), 3)));
  const Planned last(true, false, false, 1, 2);
  EXPECT_THAT(last.Loads().Buffers(last.graph, 2), ElementsAre(Pair(Bytes(2 * 8), 3)));
}

}  // namespace
}  // namespace stagewright::testing
