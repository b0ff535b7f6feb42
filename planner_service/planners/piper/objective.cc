#include "planner_service/planners/piper/objective.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagewright {
namespace {

std::vector<bool> MembersOf(const PiperProblem& problem, const PiperStage& stage) {
  std::vector<bool> member(problem.dag.size());
  for (int32_t op : stage.operators) member[op] = true;
  return member;
}

double SyncOf(const std::vector<std::pair<int32_t, double>>& sync, int32_t neighbor) {
  for (const auto& [node, bytes] : sync) {
    if (node == neighbor) return bytes;
  }
  return 0;
}

const PiperMode& ModeOf(const PiperProblem& problem, int32_t op, int32_t degree) {
  const PiperMode* mode = FindMode(problem, op, degree);
  CHECK(mode != nullptr);
  return *mode;
}

const PiperChoice& ChoiceOf(const PiperMode& mode, bool recompute) {
  CHECK(!recompute || mode.recompute.has_value());
  return recompute ? *mode.recompute : mode.keep;
}

}  // namespace

const PiperMode* FindMode(const PiperProblem& problem, int32_t op, int32_t degree) {
  for (const PiperMode& mode : problem.modes[op]) {
    if (mode.degree == degree) return &mode;
  }
  return nullptr;
}

double PiperStageTime(const PiperProblem& problem, const PiperStage& stage) {
  const std::vector<bool> member = MembersOf(problem, stage);
  double time = 0;
  double parameters = 0;
  for (size_t i = 0; i < stage.operators.size(); ++i) {
    const PiperMode& mode = ModeOf(problem, stage.operators[i], stage.degree);
    time += ChoiceOf(mode, stage.recompute[i]).time;
    parameters += mode.parameter_bytes;
  }
  double crossing = 0;
  for (const PiperEdge& edge : problem.edges) {
    if (member[edge.from] == member[edge.to]) continue;
    const double sync = member[edge.to]
                            ? SyncOf(ModeOf(problem, edge.to, stage.degree).sync_from, edge.from)
                            : SyncOf(ModeOf(problem, edge.from, stage.degree).sync_to, edge.to);
    crossing += edge.bytes + sync;
  }
  const double d = stage.replicas;
  const double sums = 4 * (d - 1) * parameters / static_cast<double>(problem.micro_batches);
  return (time + (2 * crossing + sums) / problem.bandwidth) / d;
}

double PiperStageMemory(const PiperProblem& problem, const PiperPartition& partition, size_t s) {
  int64_t replicas = 0;
  for (size_t later = s; later < partition.size(); ++later) replicas += partition[later].replicas;
  const PiperStage& stage = partition[s];
  const auto micro_batches_in_flight =
      static_cast<double>((replicas + stage.replicas - 1) / stage.replicas);
  double memory = 0;
  for (size_t i = 0; i < stage.operators.size(); ++i) {
    const PiperChoice& choice =
        ChoiceOf(ModeOf(problem, stage.operators[i], stage.degree), stage.recompute[i]);
    memory += choice.per_micro_batch * micro_batches_in_flight + choice.fixed;
  }
  if (!problem.inputs_in_memory) return memory;
  const std::vector<bool> member = MembersOf(problem, stage);
  for (const PiperEdge& edge : problem.edges) {
    if (member[edge.to] && !member[edge.from]) memory += edge.bytes * micro_batches_in_flight;
  }
  return memory;
}

double PiperObjective(const PiperProblem& problem, const PiperPartition& partition) {
  double largest = 0;
  for (const PiperStage& stage : partition) {
    largest = std::max(largest, PiperStageTime(problem, stage));
  }
  return largest;
}

}  // namespace stagewright
