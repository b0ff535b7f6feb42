#include "planner_service/planners/piper/stage_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::ElementsAre;

// Two operators in a row, 8 bytes between them, and as many bytes a second; two micro-batches.
PiperProblem TwoOperators() {
  PiperProblem problem;
  problem.dag = Dag::Create(2, {{0, 1}}).value();
  problem.edges = {{0, 1, 8}};
  PiperMode first, second;
  first.keep = {3, 10, 1};
  second.keep = {5, 20, 2};
  second.recompute = PiperChoice{7, 4, 2};
  second.parameter_bytes = 16;
  problem.modes = {{first}, {second}};
  problem.micro_batches = 2;
  problem.devices = 2;
  problem.memory = 100;
  problem.bandwidth = 8;
  return problem;
}

// The empty set, the first operator, both.
VertexSets Prefixes() {
  VertexSets sets(2);
  const uint64_t rows[] = {0, 1, 3};
  sets.Add({&rows[0], 1}, -1, -1);
  sets.Add({&rows[1], 1}, 0, 0);
  sets.Add({&rows[2], 1}, 1, 1);
  return sets;
}

// The least limit, in tenths, within which the stage is.
double Time(const PiperStageCosts& costs, int32_t inner, int32_t outer,
            const PiperStageCosts::Shape& shape) {
  for (int limit = 0; limit < 1000; ++limit) {
    if (costs.Within(inner, outer, shape, limit / 10.0)) return limit / 10.0;
  }
  return -1;
}

TEST(PiperStageCosts, AreTimesAndWhatCrossesTheCuts) {
  const PiperProblem problem = TwoOperators();
  const VertexSets sets = Prefixes();
  const PiperStageCosts costs(problem, sets);
  EXPECT_THAT(costs.degrees(), ElementsAre(1));
  EXPECT_DOUBLE_EQ(costs.DeviceTime(2) - costs.DeviceTime(0), 8);
  EXPECT_DOUBLE_EQ(Time(costs, 0, 2, {}), 8) << "nothing leaves the whole";
  // Twice 8 bytes at 8 bytes a second: forward and backward.
  EXPECT_DOUBLE_EQ(Time(costs, 0, 1, {}), 3 + 2);
  EXPECT_DOUBLE_EQ(Time(costs, 1, 2, {}), 5 + 2);
  // Two replicas: half of it all, and 4 * 16 bytes of gradients over two micro-batches.
  EXPECT_DOUBLE_EQ(Time(costs, 1, 2, {0, 2, 1}), (5 + 2 + 4) / 2.0);
}

TEST(PiperStageCosts, RecomputeWhereMemoryAsksForIt) {
  PiperProblem problem = TwoOperators();
  const VertexSets sets = Prefixes();
  problem.memory = 30;
  const PiperStageCosts costs(problem, sets);
  const PiperStageCosts::Shape once{0, 1, 1}, twice{0, 1, 2};
  EXPECT_FALSE(costs.Build(1, 2, once).recompute[0]);
  EXPECT_TRUE(costs.Build(1, 2, twice).recompute[0]) << "2 * 20 + 2 bytes do not fit, 2 * 4 + 2 do";
  EXPECT_DOUBLE_EQ(Time(costs, 1, 2, twice), 7 + 2);
  EXPECT_DOUBLE_EQ(Time(costs, 0, 2, twice), -1) << "the first operator alone keeps 21";
  problem.memory = 31;
  EXPECT_DOUBLE_EQ(Time(PiperStageCosts(problem, sets), 0, 2, twice), 3 + 7);
}

TEST(PiperStageCosts, BuiltStagesTakeWhatWasSaid) {
  PiperProblem problem = TwoOperators();
  const VertexSets sets = Prefixes();
  for (const double memory : {31.0, 100.0}) {
    problem.memory = memory;
    const PiperStageCosts costs(problem, sets);
    const PiperStage stage = costs.Build(0, 2, {0, 1, 2});
    EXPECT_THAT(stage.operators, ElementsAre(0, 1));
    EXPECT_DOUBLE_EQ(PiperStageTime(problem, stage), Time(costs, 0, 2, {0, 1, 2}));
  }
}

TEST(PiperStageCosts, InputsMayCountAsMemory) {
  PiperProblem problem = TwoOperators();
  const VertexSets sets = Prefixes();
  problem.memory = 25;
  EXPECT_DOUBLE_EQ(Time(PiperStageCosts(problem, sets), 1, 2, {}), 7);
  problem.inputs_in_memory = true;  // 8 bytes: the operator recomputes.
  EXPECT_DOUBLE_EQ(Time(PiperStageCosts(problem, sets), 1, 2, {}), 9);
}

}  // namespace
}  // namespace stagewright
