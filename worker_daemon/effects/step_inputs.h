// What the passes of a step read of the data set: inputs of the graph, and totals of the batch.
//
// For an accelerator inputs are gathered ahead (input_prefetch.h). A processor would compute
// meanwhile on the cores that gathering takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/dataset.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/effects/batch_totals.h"
#include "worker_daemon/effects/input_loads.h"
#include "worker_daemon/effects/input_prefetch.h"
#include "worker_daemon/effects/step_data.h"
#include "worker_daemon/messages/buffer_pool.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/step/step_action.h"

namespace stagewright {

// Not thread-safe, but for its const functions while no other runs.
class StepInputs {
 public:
  // All references must outlive it, and `streams`: null, unless what is queued on `device` runs
  // while the compute lane goes on. Errors of TotalsModule::Create, naming the device.
  static absl::StatusOr<std::unique_ptr<StepInputs>> Create(
      const Graph& graph, const Program& program, const DevicePlan& plan, const Dataset& data,
      const ParameterStore& parameters, BufferPool& buffers, at::Device device,
      DeviceStreams* streams);

  // INVALID_ARGUMENT unless the step has as many samples as the program takes.
  absl::Status Check(const StepInput& input) const;

  // From now on the mini-batches are those of this step and the one after it.
  void Begin(const StepInput& input);

  // The next step will be of these samples. REQUIRES: they are mini_batch, and no step is under
  // way that others follow without a flush.
  void GatherAhead(std::span<const int64_t> samples);

  // An input of the graph for some samples, on the device. Errors of Dataset::Gather.
  absl::StatusOr<at::Tensor> Load(InputId input, const StepSamples& samples) const;
  absl::StatusOr<std::vector<at::Tensor>> Load(const std::vector<InputId>& inputs,
                                               const StepSamples& samples) const;

  // All totals that the device's stages read, over these samples of the data set.
  absl::StatusOr<std::vector<at::Tensor>> TotalsOver(std::span<const int64_t> samples) const;

  // The totals `wanted`, ascending, for a pass of `stage`: of its mini-batch, or in an asynchronous
  // program of its micro-batch.
  absl::StatusOr<std::vector<at::Tensor>> TotalsFor(const std::vector<TotalId>& wanted,
                                                    StageId stage, const StepSamples& samples);

  // How many samples of the mini-batch count, and which of `samples` do.
  int64_t ValidIn(int64_t step) const { return BatchOf(step).valid; }
  StepSamples ValidOf(const StepSamples& samples) const;

  // Which samples of the data set a pass ran, where the device reads any: " (3, 1, 4 of the data)".
  std::string InData(const StepAction& action) const;

 private:
  // The mini-batch of a step.
  struct Batch {
    std::span<const int64_t> samples;
    int64_t valid = 0;
    // What TotalsOver gives for the batch of a synchronous program, once needed.
    std::optional<std::vector<at::Tensor>> totals;

    // The samples of the data set in `range`.
    std::span<const int64_t> In(SampleRange range) const {
      return samples.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
    }
  };

  StepInputs(const Graph& graph, const Program& program, const DevicePlan& plan,
             const Dataset& data, BufferPool& buffers, at::Device device, DeviceStreams* streams)
      : graph_(graph),
        program_(program),
        plan_(plan),
        data_(data),
        buffers_(buffers),
        device_(device),
        streams_(streams),
        loads_(graph, program, plan) {}

  // On the host; for an accelerator as bytes.
  absl::StatusOr<at::Tensor> Gather(InputId input, std::span<const int64_t> samples) const;
  absl::StatusOr<at::Tensor> GatherOnThread(InputId input, std::span<const int64_t> samples) const;
  // What Gather gave for `count` samples, on the device.
  at::Tensor OnDevice(InputId input, int64_t count, at::Tensor gathered) const;
  absl::StatusOr<std::vector<at::Tensor>> AllTotals(StageId stage, const StepSamples& samples);
  // REQUIRES: the step under way or the one after it.
  Batch& BatchOf(int64_t step) { return batches_[step - step_]; }
  const Batch& BatchOf(int64_t step) const { return batches_[step - step_]; }

  const Graph& graph_;
  const Program& program_;
  const DevicePlan& plan_;
  const Dataset& data_;
  BufferPool& buffers_;
  const at::Device device_;
  DeviceStreams* const streams_;
  std::optional<TotalsModule> totals_;  // If a stage reads any.
  int64_t step_ = 0;                    // The step under way.
  std::array<Batch, 2> batches_;        // Its mini-batch and that of the step after it.
  const InputLoads loads_;
  bool in_run_ = false;                      // The next step follows without a flush.
  std::unique_ptr<InputPrefetch> prefetch_;  // Last: uses the members above. Null: nothing is.
};

}  // namespace stagewright
