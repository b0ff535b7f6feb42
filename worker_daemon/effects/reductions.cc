#include "worker_daemon/effects/reductions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/update/gradient_norm.h"
#include "worker_daemon/update/gradient_reduction.h"

namespace stagewright {

namespace {

// Over all devices each element of each parameter once.
std::vector<ParameterRange> CountedHere(const Graph& graph, const Program& program,
                                        DeviceId device) {
  std::vector<bool> shared(graph.parameters().size(), false);
  for (const Reduction& reduction : program.reductions) {
    for (ParameterId id : reduction.parameters) shared[id.index()] = reduction.sharded;
  }
  std::vector<ParameterRange> counted = SharesOn(graph, program, device);
  for (ParameterId id : ParametersToWrite(graph, program, device)) {
    if (!shared[id.index()]) counted.push_back({id, 0, graph.parameter(id).Elements()});
  }
  std::sort(counted.begin(), counted.end(),
            [](const ParameterRange& a, const ParameterRange& b) { return a.id < b.id; });
  return counted;
}

}  // namespace

Reductions::Reductions(const Graph& graph, const Program& program, DeviceId device,
                       ParameterStore& parameters, StepFigures& figures, Transport* transport,
                       DeviceStreams* streams, const ReductionOptions& options)
    : graph_(graph),
      program_(program),
      parameters_(parameters),
      figures_(figures),
      transport_(transport),
      streams_(streams),
      options_(options),
      owned_(CountedHere(graph, program, device)),
      tags_(options.first_channel, program.reductions.size()) {}

absl::Status Reductions::Run(const StepAction& action) {
  const int32_t index = action.action().channel;
  const Reduction& reduction = program_.reductions[index];
  const Tag tag = tags_.Next(index, Traffic::kReduction);
  if (reduction.gradient_norm) return ReduceNorm(action, reduction, tag);
  const auto run = action.action().kind == ActionKind::kReduceScatter ? ScatterGradients
                   : action.action().kind == ActionKind::kAllGather   ? GatherParameters
                                                                      : ReduceGradients;
  // Without a deadline of its own: when the step's passes, the transport is aborted.
  return run(graph_, reduction, parameters_, *transport_, tag, absl::InfiniteFuture(), streams_);
}

absl::Status Reductions::ReduceNorm(const StepAction& action, const Reduction& reduction, Tag tag) {
  figures_.AwaitAll();
  // The compute lane adds to the loss no more: the sum waits for all its backward passes.
  const double loss = figures_.LossOf(action.step);
  LossScale* const scale = options_.loss_scale;
  const NonFinite policy = scale == nullptr ? options_.on_non_finite : NonFinite::kSkip;
  ASSIGN_OR_RETURN(const double norm,
                   ClipGradientNorm(reduction, owned_, options_.max_gradient_norm, parameters_,
                                    transport_, tag, absl::InfiniteFuture(), policy,
                                    std::isfinite(loss), scale == nullptr ? 1 : scale->value()));
  const bool finite = std::isfinite(norm);
  figures_.SetSkipped(action.step, policy == NonFinite::kSkip && !finite);
  if (scale == nullptr) return absl::OkStatus();
  if (!finite && scale->exhausted() && options_.on_non_finite == NonFinite::kStop) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the norm of the gradients is ", norm, " with a loss scale of ", scale->value(), ", too"));
  }
  scale->Update(finite);
  return absl::OkStatus();
}

}  // namespace stagewright
