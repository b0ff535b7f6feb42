// The figures of a step: its loss and its correct predictions, added up over the passes of a
// device.
//
// On an accelerator they are copied beside compute and counted when they are waited for, in the
// order of the passes, so that sums do not depend on when they come.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/training/non_finite.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/effects/step_data.h"
#include "worker_daemon/messages/buffer_pool.h"
#include "worker_daemon/step/step_action.h"

namespace stagewright {

// What one pass adds to a step's output.
struct PassFigures {
  int64_t step = 0;     // The step that its samples are of.
  int64_t samples = 0;  // Samples that the loss covers.
  int64_t valid = 0;    // Samples of the mini-batch that count.
  bool has_loss = false;
  double loss = 0;
  int64_t correct = 0;
  int64_t predicted = 0;
};

struct FigureOptions {
  LossReduction reduction = LossReduction::kMean;
  // Multiplies losses that are sums.
  double loss_share = 1;
  NonFinite on_non_finite = NonFinite::kStop;  // For a loss.
};

// Thread-safe.
class StepFigures {
 public:
  // Called when a figure shows, after its pass, that the pass has failed; on any thread.
  using OnFailure = std::function<void(const StepAction& pass, const absl::Status& status)>;

  // `buffers` must outlive it, and `streams`: null, unless what is queued on the device runs while
  // the compute lane goes on.
  StepFigures(const FigureOptions& options, BufferPool& buffers, DeviceStreams* streams,
              OnFailure on_failure)
      : options_(options),
        buffers_(buffers),
        streams_(streams),
        on_failure_(std::move(on_failure)) {}

  // Adds the figures of a pass, with the loss and the number of correct predictions as its tensors
  // say, if they are defined. With streams these are asked for, and counted by AwaitAll; a loss
  // that must stop the job does so when it comes. FAILED_PRECONDITION if it is known to.
  absl::Status Add(const StepAction& pass, PassFigures figures, const at::Tensor& loss,
                   const at::Tensor& correct) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for the figures of all passes so far and counts them.
  void AwaitAll() ABSL_LOCKS_EXCLUDED(mutex_);

  // The loss that was counted so far.
  double LossOf(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);

  // Says whether the step left out its update.
  void SetSkipped(int64_t step, bool skipped) ABSL_LOCKS_EXCLUDED(mutex_);

  // What was counted for a step, which ends with it.
  StepOutput Take(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void AskFor(const StepAction& pass, const PassFigures& figures, const at::Tensor& loss,
              const at::Tensor& correct) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(const PassFigures& figures) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLoss(double loss) const;

  const FigureOptions options_;
  BufferPool& buffers_;
  DeviceStreams* const streams_;
  const OnFailure on_failure_;
  absl::Mutex mutex_;
  // Figures that the device works out, in the order of their passes, and how many have not come.
  std::deque<PassFigures> expected_ ABSL_GUARDED_BY(mutex_);
  size_t outstanding_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, StepOutput> outputs_ ABSL_GUARDED_BY(mutex_);  // By step; without events.
};

}  // namespace stagewright
