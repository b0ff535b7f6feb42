#include "worker_daemon/executor/check_job.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/data/sample_lengths.h"
#include "worker_daemon/executor/device_checkpoint.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

absl::Status CheckJob(const DeviceJob& job) {
  if (job.graph == nullptr || job.program == nullptr)
    return absl::InvalidArgumentError("a job needs a graph and a program");
  if (!job.graph->executable()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "graph \"", job.graph->name(), "\" is for planning only: it has no arguments or no loss"));
  }
  if (!job.program->training) return absl::InvalidArgumentError("program: it does not train");
  if (job.evaluation != nullptr && job.evaluation->training)
    return absl::InvalidArgumentError("evaluation: its program trains");
  RETURN_IF_ERROR(CheckLengths(job));
  // The channel above all of them is that of evaluations (evaluation_pass.h).
  uint32_t channels = 0;
  for (const Program* program : ProgramsOf(job)) channels += ChannelsOf(*program);
  if (channels >= Tag::kMaxChannel)
    return absl::InvalidArgumentError("lengths: their programs have too many channels together");
  if (job.steps < 1) return absl::InvalidArgumentError("steps: at least one is needed");
  if (job.program->mini_batch < 1 || job.steps > kMostTrainedSamples / job.program->mini_batch) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps: ", job.steps, " mini-batches of ", job.program->mini_batch,
                     " samples are not from 1 to ", kMostTrainedSamples, " samples"));
  }
  const auto& reductions = job.program->reductions;
  const bool sums_norm = !reductions.empty() && reductions.back().gradient_norm;
  if (sums_norm != NeedsGradientNorm(job.training)) {
    return absl::InvalidArgumentError(
        sums_norm
            ? "program: it sums a norm of gradients, but neither clipping, skipping nor float16 "
              "needs it"
            : "optimizer.max_gradient_norm, on_non_finite, precision: the program does not sum a "
              "norm of gradients");
  }
  RETURN_IF_ERROR(
      Check(job.training, {*job.graph, job.program->asynchronous, job.evaluation != nullptr}));
  if (job.checkpoint_due && job.program->asynchronous && !job.flush_after) {
    return absl::InvalidArgumentError(
        "checkpoints of an asynchronous program need flush_after: it has no state between steps "
        "that are not flushed");
  }
  if (job.records.steps > 0 && job.program->asynchronous) {
    return absl::InvalidArgumentError(
        "records: an asynchronous plan updates with gradients of older weights, so its steps are "
        "not those of a single device");
  }
  if (job.records.compare && job.program->devices.size() != 1)
    return absl::InvalidArgumentError("records.compare: the program must be of a single device");
  return CheckResume(job);
}

}  // namespace stagewright
