// Runs a program on one device: a driver of the Cursor whose effects are LibTorch and a transport.
//
// The thread that calls RunStep runs the compute lane. Transfers are asynchronous: the thread that
// learns that an action has ended, the caller's or one of the transport's, tells the cursor and
// starts what became ready. All-reduces block and have a thread of their own.
//
// A trace event lasts from Cursor::Start to Cursor::Finish, so that the time a thread takes to wake
// up belongs to the action it wakes up for, and a replay of the trace has no gaps.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/schedule/cursor.h"
#include "common/schedule/program.h"
#include "common/schedule/trace.h"
#include "worker_daemon/data/dataset.h"
#include "worker_daemon/engine/device_plan.h"
#include "worker_daemon/engine/mailbox.h"
#include "worker_daemon/engine/message.h"
#include "worker_daemon/engine/optimizer.h"
#include "worker_daemon/engine/parameter_store.h"
#include "worker_daemon/engine/stage_module.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

struct ExecutorOptions {
  at::Device device = at::kCPU;
  uint64_t seed = 0;
  double loss_weight = 1.0;    // See StageOptions.
  uint32_t first_channel = 0;  // Added to channel numbers: keeps the messages of several programs
                               // over one transport apart.
};

// One mini-batch.
struct StepInput {
  int64_t step = 0;                  // Of the job, from 0; keys dropout and names errors.
  std::span<const int64_t> samples;  // Indices into the data set: mini_batch of them.
  int64_t valid = 0;  // Samples [0, valid) count; the others fill up. All of them in training.
  absl::Time deadline = absl::InfiniteFuture();
};

// What one device saw of a step. Loss, samples and correct predictions of all devices add up to
// those of the mini-batch.
struct StepOutput {
  double loss = 0;                 // Of the valid samples: a mean is weighted by samples / valid.
  int64_t loss_samples = 0;        // That `loss` covers.
  int64_t correct = 0;             // Predictions whose largest entry is the target's class.
  int64_t predicted = 0;           // Predictions looked at; 0 if the graph does not classify.
  std::vector<TraceEvent> events;  // In order of their end.
};

class Executor {
 public:
  // All references must outlive the executor. `optimizer` may be null for programs that do not
  // train, `transport` for devices that talk to no other; otherwise it is connected to all of them.
  // Errors of MakeDevicePlan and StageModule::Create.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(
      const Graph& graph, const Program& program, DeviceId device, const ParameterStore& parameters,
      const Dataset& data, ParameterOptimizer* optimizer, Transport* transport,
      const ExecutorOptions& options);

  // Waits for every transfer to end. REQUIRES: no call is under way.
  ~Executor();

  // Runs the body once. Not thread-safe.
  // DEADLINE_EXCEEDED, naming device, step and the actions that were waited for;
  // FAILED_PRECONDITION if the loss is not finite, before the parameters change; what Abort was
  // called with; errors of the transport. After an error the transport is aborted, and further
  // calls return the same error.
  absl::StatusOr<StepOutput> RunStep(const StepInput& input);

  // Ends the step under way and all later ones with `status`. Safe from any thread.
  void Abort(const absl::Status& status);

  // INVALID_ARGUMENT, naming the tensor, if the stages of this device cannot run a step whose
  // samples are not all valid.
  absl::Status CheckPartialBatches() const;

  // Nodes whose result depends on how the batch is cut, by name.
  std::vector<std::string> BatchDependentNodes() const;

 private:
  // What a forward or backward made, until all sends of it have been packed.
  struct Result {
    std::vector<at::Tensor> tensors;  // Parallel to outputs() or received() of the stage.
    size_t sends_left = 0;
  };
  Executor(const Graph& graph, const Program& program, const ParameterStore& parameters,
           const Dataset& data, ParameterOptimizer* optimizer, Transport* transport,
           const ExecutorOptions& options)
      : graph_(graph),
        program_(program),
        parameters_(parameters),
        data_(data),
        optimizer_(optimizer),
        transport_(transport),
        options_(options) {}

  absl::Status BuildStages();

  // The machine: which action runs when.
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  int32_t NextCompute() ABSL_LOCKS_EXCLUDED(mutex_);  // -1: the step is done, or failed.
  void Launch(const std::vector<int32_t>& ready, std::vector<int32_t>& transfers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(int32_t index, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status DeadlineExceeded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ComputeMayGoOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The effects.
  absl::Status Compute(int32_t index);
  absl::Status RunForward(int32_t index);
  absl::Status RunBackward(int32_t index);
  void StartTransfer(int32_t index);
  void StartSend(int32_t index);
  void StartReceive(int32_t index);
  void RunReductions();
  void KeepResult(int32_t index, std::vector<at::Tensor> tensors);
  absl::Status HandOver(int32_t index, Direction direction, const std::vector<at::Tensor>& tensors);
  absl::StatusOr<std::vector<at::Tensor>> PiecesOf(int32_t channel, Direction direction,
                                                   SampleRange whole, SampleRange piece,
                                                   const std::vector<at::Tensor>& tensors) const;
  // A packed message and its size.
  struct Message {
    at::Tensor buffer;
    Bytes bytes = 0;
  };
  absl::StatusOr<Message> PackMessage(const Action& action, Direction direction, SampleRange whole,
                                      const std::vector<at::Tensor>& tensors) const;
  absl::StatusOr<StageModule::Tensors> Collect(StageId stage, SampleRange range);
  absl::StatusOr<std::vector<at::Tensor>> CollectGradients(StageId stage, SampleRange range);
  at::Tensor LoadInput(InputId input, SampleRange range) const;
  absl::Status Account(const StageModule::Forwarded& result, SampleRange range);
  absl::Status EvaluatePartly(StageModule& module, const StageModule::Tensors& tensors,
                              SampleRange range, SampleRange valid);
  Tag TagOf(const Action& action);

  const Action& ActionAt(int32_t index) const { return plan_.program->body[index].action; }
  const std::vector<ValueRef>& ValuesOf(int32_t channel, Direction direction) const;
  StageModule& ModuleOf(StageId stage) { return *modules_.at(stage); }

  const Graph& graph_;
  const Program& program_;
  const ParameterStore& parameters_;
  const Dataset& data_;
  ParameterOptimizer* const optimizer_;
  Transport* const transport_;
  const ExecutorOptions options_;
  DevicePlan plan_;
  std::map<StageId, std::unique_ptr<StageModule>> modules_;
  std::vector<std::array<uint32_t, 3>> sequences_;  // Messages so far, by channel and Traffic.
  Mailbox mailbox_;

  // Of the step under way; written by RunStep before anything starts.
  StepInput input_;
  StepOutput output_;                                    // Only touched by the compute lane.
  std::vector<Result> results_ ABSL_GUARDED_BY(mutex_);  // By action.

  mutable absl::Mutex mutex_;
  std::optional<Cursor> cursor_ ABSL_GUARDED_BY(mutex_);
  int32_t next_compute_ ABSL_GUARDED_BY(mutex_) = -1;
  std::set<int32_t> running_ ABSL_GUARDED_BY(mutex_);  // Transfers and all-reduces under way.
  std::deque<int32_t> reductions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Nanos> starts_ ABSL_GUARDED_BY(mutex_);  // Of Cursor::Start, by action.
  std::vector<TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reduction_thread_;  // If the device takes part in reductions.
};

}  // namespace stagewright
