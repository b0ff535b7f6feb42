#include "worker_daemon/executor/evaluation_pass.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "common/clock/steady_now.h"
#include "worker_daemon/torch/torch_guard.h"
#include "worker_daemon/transport/all_reduce.h"

namespace stagewright {

std::vector<EvaluationPass::Batch> EvaluationPass::Batches() {
  std::vector<Batch> steps;
  const int64_t mini_batch = job_.evaluation->mini_batch;
  for (size_t l = 0; l < lengths_.size(); ++l) {
    const auto number = static_cast<int32_t>(l);
    const int64_t samples = samples_.SamplesOf(number);
    for (int64_t i = 0; i < EvaluationBatches(samples, mini_batch); ++i) {
      Batch step{&lengths_[l], EvaluationBatchAt(samples, mini_batch, i)};
      for (int64_t& index : step.batch.indices) index = samples_.IndexOf(number, index);
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

absl::StatusOr<EvaluationReport> EvaluationPass::RunHere() {
  EvaluationReport report;
  const bool mean = job_.graph->loss_reduction() == LossReduction::kMean;
  RETURN_IF_ERROR(Annotate(CollectTotals(), "evaluation"));
  const std::vector<Batch> steps = Batches();
  for (size_t i = 0; i < steps.size(); ++i) {
    const Batch& step = steps[i];
    std::span<const int64_t> next;
    if (i + 1 < steps.size()) next = steps[i + 1].batch.indices;
    const bool stays = !next.empty() && steps[i + 1].length == step.length;
    if (!next.empty() && !stays) steps[i + 1].length->evaluation->GatherAhead(next);
    auto output =
        step.length->evaluation->RunStep({.step = static_cast<int64_t>(i),
                                          .samples = step.batch.indices,
                                          .valid = step.batch.valid,
                                          .deadline = SteadyNow() + job_.step_timeout,
                                          .next_samples = stays ? next : std::span<const int64_t>(),
                                          .totals = &*totals_});
    if (!output.ok()) return Annotate(output.status(), "evaluation");
    const double share =
        static_cast<double>(step.batch.valid) / static_cast<double>(samples_.samples());
    report.loss += mean ? output->loss * share : output->loss;
    report.loss_samples += output->loss_samples;
    report.correct += output->correct;
    report.predicted += output->predicted;
  }
  return report;
}

absl::Status EvaluationPass::CollectTotals() {
  if (totals_.has_value()) return absl::OkStatus();
  const MemoryMeter::Scope counted(&memory_);
  const DeviceStreams::Scope on_compute(streams_);
  std::vector<at::Tensor> sums;
  for (const Batch& step : Batches()) {
    const std::span<const int64_t> samples(step.batch.indices.data(),
                                           static_cast<size_t>(step.batch.valid));
    absl::StatusOr<std::vector<at::Tensor>> totals;
    RETURN_IF_ERROR(Guarded([&] { totals = step.length->evaluation->TotalsOf(samples); }));
    RETURN_IF_ERROR(totals.status());
    if (totals->empty()) break;
    for (size_t t = 0; t < totals->size(); ++t) {
      if (sums.size() <= t) {
        sums.push_back((*totals)[t]);
      } else {
        sums[t] = sums[t] + (*totals)[t];
      }
    }
  }
  totals_ = std::move(sums);
  return absl::OkStatus();
}

absl::StatusOr<EvaluationReport> EvaluationPass::RunTogether(Transport* transport) {
  ASSIGN_OR_RETURN(EvaluationReport report, RunHere());
  std::vector<int> devices;
  for (const DeviceProgram& device : job_.program->devices)
    devices.push_back(device.device.value());
  if (devices.size() == 1) return report;
  double sums[] = {report.loss, static_cast<double>(report.loss_samples),
                   static_cast<double>(report.correct), static_cast<double>(report.predicted)};
  RETURN_IF_ERROR(Annotate(AllReduceSum(*transport, devices, kEvaluationTag, sums, std::size(sums),
                                        Element::kFloat64, SteadyNow() + job_.step_timeout),
                           "evaluation"));
  return EvaluationReport{sums[0], static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2]),
                          static_cast<int64_t>(sums[3])};
}

}  // namespace stagewright
