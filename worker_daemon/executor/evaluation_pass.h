// Passes through a job's evaluation data on one device.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/data/sample_lengths.h"
#include "worker_daemon/data/sampler.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/device/memory_meter.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/job_length.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// Sums of evaluations go over all devices and have a channel that no program reaches (CheckJob).
inline constexpr Tag kEvaluationTag = {Tag::kMaxChannel, Traffic::kReduction, 0};

// Not thread-safe.
class EvaluationPass {
 public:
  // All arguments must outlive it; `samples` says which evaluation samples are of which length,
  // `streams` may be null. REQUIRES: every length has an evaluation.
  EvaluationPass(const DeviceJob& job, std::deque<JobLength>& lengths, const SampleLengths& samples,
                 const MemoryMeter& memory, DeviceStreams* streams)
      : job_(job), lengths_(lengths), samples_(samples), memory_(memory), streams_(streams) {}

  // One pass: the part of it that this device sees. Errors of Executor::RunStep.
  absl::StatusOr<EvaluationReport> RunHere();

  // One pass: shares are added up over all devices of the job. Errors of AllReduceSum, too.
  absl::StatusOr<EvaluationReport> RunTogether(Transport* transport);

 private:
  // A mini-batch of the evaluation data, of one length.
  struct Batch {
    JobLength* length = nullptr;
    EvaluationBatch batch;
  };

  std::vector<Batch> Batches();
  // Works out totals_. What they depend on does not change, so once is enough.
  absl::Status CollectTotals();

  const DeviceJob& job_;
  std::deque<JobLength>& lengths_;
  const SampleLengths& samples_;
  const MemoryMeter& memory_;
  DeviceStreams* const streams_;
  // Totals of the whole evaluation data, so that its loss does not depend on how it is cut into
  // batches.
  std::optional<std::vector<at::Tensor>> totals_;
};

}  // namespace stagewright
