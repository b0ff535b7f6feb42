#include "planner_service/planners/piper/objective.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

PiperMode Mode(int32_t degree, PiperChoice keep, PiperChoice again, double parameters) {
  PiperMode mode;
  mode.degree = degree;
  mode.keep = keep;
  mode.recompute = again;
  mode.parameter_bytes = parameters;
  return mode;
}

// 0 -> 1 -> 2 and 0 -> 2, 8 micro-batches, 10 bytes per unit of time.
PiperProblem Triangle() {
  PiperProblem problem;
  problem.dag = *Dag::Create(3, {{0, 1}, {1, 2}, {0, 2}});
  problem.edges = {{0, 1, 100}, {1, 2, 200}, {0, 2, 40}};
  for (int32_t v = 0; v < 3; ++v) {
    const double time = 12.0 * (v + 1);
    problem.modes.push_back({Mode(1, {time, 50, 7}, {time + 3, 10, 20}, 80),
                             Mode(2, {time / 2, 25, 4}, {time / 2 + 2, 5, 9}, 40)});
  }
  problem.modes[1][1].sync_from = {{0, 30}};
  problem.modes[1][1].sync_to = {{2, 60}};
  problem.micro_batches = 8;
  problem.devices = 8;
  problem.memory = 1000;
  problem.bandwidth = 10;
  return problem;
}

TEST(PiperObjectiveTest, EdgesCountAtBothEndsAndReplicasShare) {
  const PiperProblem problem = Triangle();
  const PiperPartition partition = {
      {{0}, {false}, 1, 1}, {{1}, {true}, 2, 1}, {{2}, {false}, 1, 1}};
  // Compute, and twice the bytes of the edges 0 -> 1 and 0 -> 2.
  EXPECT_DOUBLE_EQ(PiperStageTime(problem, partition[0]), 12 + 2 * (100 + 40) / 10.0);
  // Two replicas: half of all, and 4 * 1/2 * 80 / 8 bytes to sum.
  EXPECT_DOUBLE_EQ(PiperStageTime(problem, partition[1]),
                   27 / 2.0 + (2 * 300 / 2.0 + 4 * 0.5 * 80 / 8) / 10);
  EXPECT_DOUBLE_EQ(PiperObjective(problem, partition),
                   std::max(PiperStageTime(problem, partition[1]), 36 + 2 * 240 / 10.0));
}

TEST(PiperObjectiveTest, TensorParallelStagesSynchroniseTheirEdges) {
  const PiperProblem problem = Triangle();
  const PiperStage stage = {{1}, {false}, 1, 2};
  EXPECT_DOUBLE_EQ(PiperStageTime(problem, stage), 12 + 2 * (100 + 30 + 200 + 60) / 10.0);
}

TEST(PiperObjectiveTest, MemoryGrowsWithTheReplicasBehind) {
  PiperProblem problem = Triangle();
  const PiperPartition partition = {
      {{0}, {false}, 1, 1}, {{1}, {true}, 3, 1}, {{2}, {false}, 2, 1}};
  EXPECT_DOUBLE_EQ(PiperStageMemory(problem, partition, 0), 50 * 6 + 7);
  EXPECT_DOUBLE_EQ(PiperStageMemory(problem, partition, 1), 10 * 2 + 20);  // ceil(5 / 3)
  EXPECT_DOUBLE_EQ(PiperStageMemory(problem, partition, 2), 50 * 1 + 7);
  problem.inputs_in_memory = true;
  EXPECT_DOUBLE_EQ(PiperStageMemory(problem, partition, 1), (10 + 100) * 2 + 20);
}

}  // namespace
}  // namespace stagewright
