#include "planner_service/evaluator/evaluator.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/cost/parameters.h"
#include "common/graph/dag.h"
#include "common/lowering/lower.h"
#include "common/strategy/check_strategy.h"
#include "common/validation/validate.h"
#include "planner_service/evaluator/over_memory.h"
#include "planner_service/simulator/model_durations.h"

namespace stagewright {
namespace {

absl::Status CheckMemory(const Graph& graph, Precision precision, const Cluster& cluster,
                         Optimizer optimizer, Evaluation& evaluation) {
  evaluation.devices = evaluation.simulation.devices;
  const std::vector<Bytes> alone = PeakMemories(evaluation.program);
  for (size_t row = 0; row < evaluation.devices.size(); ++row) {
    const DeviceProgram& device = evaluation.program.devices[row];
    Bytes& peak = evaluation.devices[row].peak_memory;
    peak = std::max(peak, alone[row]);
    if (peak > cluster.device(device.device).memory) {
      return OverMemory(MessageTypes(graph, precision), cluster, evaluation.program, device,
                        optimizer, peak);
    }
  }
  return absl::OkStatus();
}

// What one device does for one stage.
struct StageWork {
  Nanos longest[static_cast<size_t>(kLastActionKind) + 1] = {};  // By action kind.
  Nanos collectives = 0;
  int64_t in_flight = 0;
  int64_t most_in_flight = 0;

  Nanos ComputePerMicroBatch() const {
    Nanos sum = 0;
    for (ActionKind kind : {ActionKind::kForward, ActionKind::kRecompute, ActionKind::kBackward,
                            ActionKind::kBackwardInput, ActionKind::kBackwardWeight}) {
      sum += longest[static_cast<size_t>(kind)];
    }
    return sum;
  }
};

std::vector<StageWork> WorkOf(const DeviceProgram& device, const Durations& durations,
                              size_t num_stages) {
  std::vector<StageWork> work(num_stages);
  // One step; what an asynchronous program has in flight starts in its prologue.
  for (const auto* section : {&device.prologue, &device.body}) {
    for (const ProgramAction& item : *section) {
      const Action& action = item.action;
      if (IsTransfer(action.kind)) continue;
      StageWork& stage = work[action.stage.index()];
      const Nanos time = durations.Of(device.device, action);
      Nanos& longest = stage.longest[static_cast<size_t>(action.kind)];
      longest = std::max(longest, time);
      if (IsCollective(action.kind)) stage.collectives += time;
      if (action.kind == ActionKind::kForward) {
        stage.in_flight += action.samples.size();
        stage.most_in_flight = std::max(stage.most_in_flight, stage.in_flight);
      }
      if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput) {
        stage.in_flight -= action.samples.size();
      }
    }
  }
  return work;
}

std::vector<StageReport> ReportStages(const Evaluation& evaluation, const Durations& durations) {
  const Program& program = evaluation.program;
  std::vector<StageReport> reports(program.stages.size());
  std::vector<Nanos> collectives(program.stages.size());
  for (size_t row = 0; row < program.devices.size(); ++row) {
    const DeviceProgram& device = program.devices[row];
    const std::vector<StageWork> work = WorkOf(device, durations, reports.size());
    for (size_t stage = 0; stage < reports.size(); ++stage) {
      const auto& devices = program.stages[stage].devices;
      if (std::find(devices.begin(), devices.end(), device.device) == devices.end()) continue;
      StageReport& report = reports[stage];
      report.compute_per_micro_batch =
          std::max(report.compute_per_micro_batch, work[stage].ComputePerMicroBatch());
      report.peak_memory = std::max(report.peak_memory, evaluation.devices[row].peak_memory);
      if (program.stages[stage].has_backward) report.in_flight += work[stage].most_in_flight;
      collectives[stage] = std::max(collectives[stage], work[stage].collectives);
    }
  }
  for (size_t stage = 0; stage < reports.size(); ++stage) {
    reports[stage].seconds_per_sample =
        ToSeconds(reports[stage].compute_per_micro_batch) /
            static_cast<double>(program.stages[stage].micro_batch) +
        ToSeconds(collectives[stage]) / static_cast<double>(program.mini_batch);
  }
  return reports;
}

double BubbleRatio(const Evaluation& evaluation) {
  if (evaluation.iteration_time == 0 || evaluation.devices.empty()) return 0;
  double busy = 0;
  for (const DeviceUse& device : evaluation.devices) busy += static_cast<double>(device.busy);
  return 1 - busy / (static_cast<double>(evaluation.iteration_time) *
                     static_cast<double>(evaluation.devices.size()));
}

absl::Status Poll(const EvaluateOptions& options) {
  if (options.stop && options.stop()) return absl::CancelledError("the evaluation was stopped");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const Graph& graph, const Cluster& cluster,
                                    const CostModel& costs, const Strategy& strategy,
                                    const EvaluateOptions& options) {
  RETURN_IF_ERROR(CheckStrategy(graph, cluster, strategy));
  ASSIGN_OR_RETURN(const Dag stage_graph, StageGraph(strategy));
  RETURN_IF_ERROR(Poll(options));
  Evaluation evaluation;
  LowerOptions lower;
  lower.optimizer = options.optimizer;
  lower.gradient_norm = options.gradient_norm;
  lower.posting = options.posting;
  lower.cluster = &cluster;
  absl::StatusOr<Program> program = Lower(graph, strategy, costs, lower);
  // The strategy is at fault, not the question: it cuts what cannot be split.
  if (absl::IsInvalidArgument(program.status()))
    return absl::FailedPreconditionError(program.status().message());
  RETURN_IF_ERROR(program.status());
  evaluation.program = *std::move(program);
  RETURN_IF_ERROR(Poll(options));
  // Memory: below, with advice.
  if (!options.brief) RETURN_IF_ERROR(Validate(evaluation.program, {}));
  RETURN_IF_ERROR(Poll(options));

  const std::unique_ptr<Durations> durations =
      MakeModelDurations(graph, evaluation.program, cluster, costs, options.optimizer);
  SimulateOptions simulate;
  simulate.timeline = options.timeline;
  simulate.stop = options.stop;
  ASSIGN_OR_RETURN(evaluation.simulation, Simulate(evaluation.program, *durations, simulate));
  RETURN_IF_ERROR(CheckMemory(graph, costs.precision(), cluster, options.optimizer, evaluation));

  evaluation.iteration_time = evaluation.simulation.step_time;
  if (evaluation.iteration_time > 0) {
    evaluation.samples_per_second =
        static_cast<double>(strategy.mini_batch) / ToSeconds(evaluation.iteration_time);
  }
  if (options.brief) return evaluation;
  evaluation.depth = Depth(stage_graph);
  evaluation.bubble_ratio = BubbleRatio(evaluation);
  evaluation.stages = ReportStages(evaluation, *durations);
  return evaluation;
}

}  // namespace stagewright
