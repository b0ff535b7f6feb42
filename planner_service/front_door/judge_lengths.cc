#include "planner_service/front_door/judge_lengths.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/units.h"
#include "common/graph/lengths.h"
#include "common/memory/message_buffers.h"
#include "common/plan/plan.h"
#include "planner_service/front_door/check_times.h"
#include "planner_service/front_door/request_costs.h"

namespace stagewright {
namespace {

absl::StatusOr<Evaluation> EvaluateFor(const PlanRequest& request, const Graph& graph,
                                       const Strategy& strategy,
                                       const std::function<bool()>& stop) {
  const std::unique_ptr<CostModel> costs = MakeCosts(request, graph);
  RETURN_IF_ERROR(CheckTimes(graph, *request.cluster, *costs, request.mini_batch));
  EvaluateOptions options;
  options.optimizer = request.optimizer;
  options.gradient_norm = request.gradient_norm;
  options.stop = stop;
  return Evaluate(graph, *request.cluster, *costs, strategy, options);
}

// What the buffers of other lengths add to the figures of one.
absl::Status AddToPeaks(const Cluster& cluster, const Program& before, const std::string& samples,
                        Evaluation& evaluation) {
  for (size_t row = 0; row < evaluation.devices.size(); ++row) {
    DeviceUse& use = evaluation.devices[row];
    use.peak_memory += evaluation.program.devices[row].resident - before.devices[row].resident;
    const Device& device = cluster.device(use.device);
    if (use.peak_memory <= device.memory) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "device ", device.name, " has ", FormatBytes(device.memory), ", but steps of samples ",
        samples, " need ", FormatBytes(use.peak_memory), " with the message buffers of the other ",
        "lengths; pad samples to fewer lengths, or take smaller micro-batches"));
  }
  return absl::OkStatus();
}

}  // namespace

void HoldBuffersOfAll(const std::vector<const Graph*>& graphs, Precision precision,
                      const std::vector<Program*>& programs) {
  const size_t rows = programs.front()->devices.size();
  for (size_t row = 0; row < rows; ++row) {
    std::vector<Bytes> own;
    Bytes all = 0;
    for (size_t i = 0; i < programs.size(); ++i) {
      own.push_back(BufferBytes(MessageTypes(*graphs[i], precision), *programs[i],
                                programs[i]->devices[row]));
      all += own.back();
    }
    for (size_t i = 0; i < programs.size(); ++i) programs[i]->devices[row].resident += all - own[i];
  }
}

absl::Status JudgeLengths(const PlanRequest& request, JudgedPlan& judged,
                          const std::function<bool()>& stop) {
  if (request.lengths == nullptr || request.lengths->empty()) return absl::OkStatus();
  const Strategy& strategy = judged.plan.strategy;
  if (strategy.asynchronous) {
    return absl::FailedPreconditionError(
        "samples of several lengths need a synchronous plan: in an asynchronous one the passes of "
        "several steps run beside each other");
  }
  std::vector<const Graph*> graphs = {request.graph};
  for (const Graph& graph : *request.lengths) {
    graphs.push_back(&graph);
    LengthPlan length;
    length.samples = SampleText(graph);
    auto evaluation = EvaluateFor(request, graph, strategy, stop);
    if (!evaluation.ok())
      return Annotate(evaluation.status(), absl::StrCat("samples ", length.samples));
    length.evaluation = *std::move(evaluation);
    judged.lengths.push_back(std::move(length));
  }
  std::vector<Program*> programs = {&judged.evaluation.program};
  for (LengthPlan& length : judged.lengths) programs.push_back(&length.evaluation.program);
  std::vector<Program> before;
  for (const Program* program : programs) before.push_back(*program);
  HoldBuffersOfAll(graphs, request.precision, programs);
  RETURN_IF_ERROR(
      AddToPeaks(*request.cluster, before[0], SampleText(*request.graph), judged.evaluation));
  for (size_t i = 0; i < judged.lengths.size(); ++i) {
    RETURN_IF_ERROR(AddToPeaks(*request.cluster, before[i + 1], judged.lengths[i].samples,
                               judged.lengths[i].evaluation));
  }
  judged.plan.program = judged.evaluation.program;
  judged.plan.fingerprint =
      Fingerprint(judged.plan.program, judged.plan.provenance.graph_fingerprint);
  return absl::OkStatus();
}

}  // namespace stagewright
