// Runs a program on one device: a driver of the Cursor whose effects are LibTorch and a transport.
//
// The thread that calls RunStep runs the compute lane. Transfers are asynchronous: the thread that
// learns that an action has ended, the caller's or one of the transport's, tells the cursor and
// starts what became ready. All-reduces block and have a thread of their own.
//
// Devices whose accelerators are one group exchange packed messages (message.h) in their memory,
// other devices of one process hand tensors over by reference, and all others exchange packed
// messages in host memory. So neither end writes to what it has handed over or received.
//
// A synchronous program's body runs once per step. The sections of an asynchronous program follow
// each other without a barrier (program.h): while RunStep runs the section of one step, transfers
// of the next may start, and its forward passes run micro-batches of the next step, whose samples
// are counted on. An optimizer step puts a new version of the parameters in the place of one that a
// micro-batch in flight still needs, so that as many versions exist as there are micro-batches in
// flight, and with vertical sync as many as in the stage with most of them.
//
// On an accelerator actions end when they are queued. Messages in host memory and figures of a step
// are copied beside compute (device_streams.h): a send leaves when its copy has ended, and a
// compute action that reads a message waits for its copy on the device. The figures are looked at
// when they come, and waited for where they decide something: before parameters change, for the
// norm of the gradients and at the end of a step.
//
// A trace event lasts from Cursor::Start to Cursor::Finish, so that the time a thread takes to wake
// up belongs to the action it wakes up for, and a replay of the trace has no gaps.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
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
#include "common/data/dataset.h"
#include "common/program/program.h"
#include "common/program/run_cursor.h"
#include "common/program/trace.h"
#include "worker_daemon/device/device_clock.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/device/memory_meter.h"
#include "worker_daemon/executor/batch_totals.h"
#include "worker_daemon/executor/buffer_pool.h"
#include "worker_daemon/executor/device_plan.h"
#include "worker_daemon/executor/mailbox.h"
#include "worker_daemon/executor/message.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_module.h"
#include "worker_daemon/torch/precision.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/update/loss_scale.h"
#include "worker_daemon/update/optimizer.h"

namespace stagewright {

struct ExecutorOptions {
  at::Device device = at::kCPU;
  uint64_t seed = 0;
  double loss_weight = 1.0;                    // See StageOptions.
  NonFinite on_non_finite = NonFinite::kStop;  // Of a loss; the optimizer says it of gradients.
  Precision precision = Precision::kGraph;
  // Of the loss's gradient; changes at the end of each step, and steps whose gradients are not
  // finite update nothing, whatever the optimizer says. Outlives the executor. Null: none.
  LossScale* loss_scale = nullptr;
  // Of a device that runs what is queued on it while the compute lane goes on. Outlives the
  // executor. Null: operators have run when they return.
  DeviceClock* clock = nullptr;
  // Of such a device; outlives the executor. Null: what computes also copies.
  DeviceStreams* streams = nullptr;
  const MemoryMeter* memory = nullptr;  // Counts the tensors; outlives the executor. Null: none.
  MemoryExpectation expected_memory;    // For messages.
  uint32_t first_channel = 0;  // Added to channel numbers: keeps the messages of several programs
                               // over one transport apart.
};

// One mini-batch.
struct StepInput {
  int64_t step = 0;                  // Of the job, from 0; keys dropout and names errors.
  std::span<const int64_t> samples;  // Indices into the data set: mini_batch of them.
  int64_t valid = 0;  // Samples [0, valid) count; the others fill up. All of them in training.
  absl::Time deadline = absl::InfiniteFuture();
  // Of asynchronous programs: how many steps follow without a flush, each run with the step number
  // after the one before it, and the samples of the next one.
  int64_t steps_left = 0;
  std::span<const int64_t> next_samples;
  // Totals of the data set that the mini-batch is a part of, as TotalsOf gives them: the loss is
  // its share of the data set's. Null: those of the mini-batch itself.
  const std::vector<at::Tensor>* totals = nullptr;
};

// What one device saw of a step. Loss, samples and correct predictions of all devices add up to
// those of the mini-batch.
struct StepOutput {
  double loss = 0;           // Of the valid samples: a mean is weighted by samples / valid.
  int64_t loss_samples = 0;  // That `loss` covers.
  int64_t correct = 0;       // Predictions whose largest entry is the target's class.
  int64_t predicted = 0;     // Predictions looked at; 0 if the graph does not classify.
  bool skipped = false;      // The update was left out, on all devices alike (NonFinite::kSkip).
  // In order of their end. Asynchronous programs: those that ended since the step before; actions
  // as in the program, `step` that of their section (the prologue belongs to the first).
  std::vector<TraceEvent> events;
};

class Executor {
 public:
  // All references must outlive the executor. `optimizer` may be null for programs that do not
  // train, `transport` for devices that talk to no other; otherwise it is connected to all of them.
  // Errors of MakeDevicePlan and StageModule::Create.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(
      const Graph& graph, const Program& program, DeviceId device, ParameterStore& parameters,
      const Dataset& data, ParameterOptimizer* optimizer, Transport* transport,
      const ExecutorOptions& options);

  // Waits for every transfer to end, aborting the transport if a run of several steps was left in
  // its middle. REQUIRES: no call is under way.
  ~Executor();

  // Runs one step. Not thread-safe.
  // DEADLINE_EXCEEDED, naming device, step and the actions that were waited for;
  // FAILED_PRECONDITION if the loss is not finite and that must stop the job, before the parameters
  // change; what Abort was called with; errors of the transport. After an error the transport is
  // aborted, and further calls return the same error.
  absl::StatusOr<StepOutput> RunStep(const StepInput& input);

  // Ends the step under way and all later ones with `status`. Safe from any thread.
  void Abort(const absl::Status& status);

  // INVALID_ARGUMENT, naming the tensor, if the stages of this device cannot run a step whose
  // samples are not all valid.
  absl::Status CheckPartialBatches() const;

  // The totals of the batch that the device's stages read, over these samples of the data set.
  absl::StatusOr<std::vector<at::Tensor>> TotalsOf(std::span<const int64_t> samples);

  // Nodes whose result depends on how the batch is cut, where it is, by name.
  std::vector<std::string> BatchDependentNodes() const;

 private:
  // What a forward or backward made, until all sends of it have been packed.
  struct Result {
    std::vector<at::Tensor> tensors;  // Parallel to outputs() or received() of the stage.
    size_t sends_left = 0;
    DeviceStreams::Mark made;
  };
  // How the messages of a channel travel.
  struct Way {
    int peer = 0;
    Transport* transport = nullptr;  // Null: they do not.
    bool device_memory = false;
    ReferenceTransport* by_reference = nullptr;  // Goes before the transport.
  };
  // What a micro-batch adds to a step's output.
  struct Figures {
    SampleRange range;
    bool has_loss = false;
    double loss = 0;
    int64_t correct = 0;
    int64_t predicted = 0;
  };
  // The mini-batch of one step of the run, from 0.
  struct Batch {
    std::span<const int64_t> samples;
    int64_t valid = 0;
    std::optional<std::vector<at::Tensor>> totals;  // Of a synchronous program, once needed.
    StepOutput output;
  };

  Executor(const Graph& graph, const Program& program, ParameterStore& parameters,
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
  absl::Status CheckInput(const StepInput& input) const;
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void AppendSections(std::vector<RunAction>& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing: the step is done, or failed.
  std::optional<RunAction> NextCompute() ABSL_LOCKS_EXCLUDED(mutex_);
  void Launch(std::vector<RunAction> ready, std::vector<RunAction>& transfers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(RunAction action, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status InAction(const absl::Status& status, RunAction action) const;
  std::string SamplesInData(RunAction action) const;
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ReadClock();
  absl::Status DeadlineExceeded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ComputeMayGoOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StepIsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The effects.
  absl::Status Compute(RunAction action);
  absl::Status RunForward(RunAction action);
  absl::Status RunRecompute(StageId stage, SampleRange range);
  absl::Status RunBackward(RunAction action);
  void FindWays();
  void StartTransfer(RunAction action);
  void StartSend(RunAction action);
  void StartReceive(RunAction action);
  void SendStaged(RunAction action, const MessageLayout& layout, std::vector<at::Tensor> tensors,
                  const DeviceStreams::Mark& made);
  void PutReceived(RunAction action, const MessageLayout& layout, const at::Tensor& buffer);
  void SendTensors(RunAction action, std::vector<at::Tensor> tensors, DeviceStreams::Mark made);
  void ReceiveTensors(RunAction action);
  void RunReductions();
  absl::Status ReduceNorm(RunAction action);
  void KeepResult(RunAction action, std::vector<at::Tensor> tensors);
  absl::Status HandOver(RunAction action, Direction direction,
                        const std::vector<at::Tensor>& tensors);
  absl::StatusOr<std::vector<at::Tensor>> PiecesOf(int32_t channel, Direction direction,
                                                   SampleRange whole, SampleRange piece,
                                                   const std::vector<at::Tensor>& tensors) const;
  // REQUIRES: `sorted` has the value.
  static size_t IndexOf(const std::vector<ValueRef>& sorted, ValueRef value);
  void IsolateFromParameters(std::vector<at::Tensor>& outputs) const;
  static void IsolateGradients(std::vector<at::Tensor>& gradients);
  absl::StatusOr<StageModule::Tensors> Collect(StageId stage, SampleRange range);
  absl::StatusOr<std::vector<at::Tensor>> CollectGradients(StageId stage, SampleRange range);
  absl::StatusOr<at::Tensor> LoadInput(InputId input, SampleRange range);
  absl::StatusOr<at::Tensor> LoadSamples(InputId input, std::span<const int64_t> samples);
  absl::StatusOr<std::vector<at::Tensor>> CollectTotals(StageId stage, SampleRange range);
  SampleRange MicroBatchOf(StageId stage, SampleRange range) const;
  void UpdateStates();
  std::vector<TensorPiece> Take(int32_t channel, Direction direction, SampleRange range);
  absl::Status Update(const std::vector<ParameterId>& parameters);
  absl::Status Account(RunAction action, const StageModule::Forwarded& result, SampleRange range);
  void Expect(RunAction action, Figures figures, const at::Tensor& loss, const at::Tensor& correct);
  absl::Status CheckLoss(double loss) const;
  void Count(const Figures& figures) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EvaluatePartly(RunAction action, const StageModule::Tensors& tensors,
                              SampleRange range, SampleRange valid);
  Tag TagOf(const Action& action);

  const SectionPlan& SectionOf(int64_t section) const;
  const Action& ActionAt(RunAction action) const {
    return (*SectionOf(action.section).program)[action.index].action;
  }
  const ActionPlan& PlanAt(RunAction action) const {
    return SectionOf(action.section).actions[action.index];
  }
  // The step, counted in the run, that a section belongs to.
  int64_t StepOf(int64_t section) const {
    return plan_.has_sections ? std::max<int64_t>(section - 1, 0) : 0;
  }
  // Samples of an action counted through the steps of the run.
  SampleRange SamplesOf(RunAction action) const;
  // The mini-batch that such samples belong to, and its number and place in the run.
  int64_t StepOf(SampleRange range) const { return range.begin / program_.mini_batch; }
  SampleRange InStep(SampleRange range) const;
  SampleRange ValidOf(SampleRange range) const;  // The part that counts.
  Batch& BatchOf(SampleRange range) { return batches_[StepOf(range) - step_]; }
  const Batch& BatchOf(SampleRange range) const { return batches_[StepOf(range) - step_]; }
  const std::vector<ValueRef>& ValuesOf(int32_t channel, Direction direction) const;
  StageModule& ModuleOf(StageId stage) { return *modules_.at(stage); }

  const Graph& graph_;
  const Program& program_;
  ParameterStore& parameters_;
  const Dataset& data_;
  ParameterOptimizer* const optimizer_;
  Transport* const transport_;
  const ExecutorOptions options_;
  DevicePlan plan_;
  std::vector<ParameterId> changing_;  // Of the store: in training.
  std::vector<ParameterId> owned_;     // That count here in the gradients' norm.
  std::map<StageId, std::unique_ptr<StageModule>> modules_;
  std::optional<TotalsModule> totals_;  // If a stage reads any.
  // Losses of the graph are each a share of the batch's; of asynchronous programs, whose batches
  // are micro-batches, the mean is reported.
  double loss_share_ = 1;
  std::vector<std::array<uint32_t, 3>> sequences_;  // Messages so far, by channel and Traffic.
  std::vector<Way> ways_;  // By channel, from the first run on, when the transport is connected.
  Mailbox mailbox_;
  std::optional<BufferPool> buffers_;  // Of messages.

  // Of the run under way; changed while nothing of it runs.
  int64_t first_step_ = 0;  // Of the job.
  // Of the step under way; only touched by the compute lane.
  int64_t step_ = 0;              // Of the run.
  std::array<Batch, 2> batches_;  // Of the step, and of the one after it.
  // With a clock: where the compute actions of the step begin and end, in their order.
  std::vector<std::array<DeviceClock::Mark, 2>> marks_;
  std::vector<RunAction> event_actions_;  // Parallel to the step's events.

  mutable absl::Mutex mutex_;
  std::optional<RunCursor> cursor_ ABSL_GUARDED_BY(mutex_);  // Nothing: no run is under way.
  int64_t steps_left_ ABSL_GUARDED_BY(mutex_) = 0;           // After the step under way.
  // The epilogue's number, once it is known; written before it is appended.
  std::atomic<int64_t> last_section_ = -1;
  int64_t section_ ABSL_GUARDED_BY(mutex_) = 0;  // Of the step under way, its last to compute.
  int32_t computes_left_ ABSL_GUARDED_BY(mutex_) = 0;  // Up to the end of that section.
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  std::optional<RunAction> next_compute_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> compute_is_due_ = false;  // A hint for who polls: there is a next, or an end.
  std::set<RunAction> running_ ABSL_GUARDED_BY(mutex_);  // Transfers and all-reduces under way.
  std::deque<RunAction> reductions_ ABSL_GUARDED_BY(mutex_);
  std::map<RunAction, Result> results_ ABSL_GUARDED_BY(mutex_);
  // Figures that a device works out, in the order of their passes, and how many have not come.
  std::deque<Figures> expected_ ABSL_GUARDED_BY(mutex_);
  size_t outstanding_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<RunAction, Nanos> starts_ ABSL_GUARDED_BY(mutex_);  // Of actions under way.
  std::vector<TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<RunAction> ended_ ABSL_GUARDED_BY(mutex_);  // Parallel to events_.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reduction_thread_;  // If the device takes part in reductions.
};

}  // namespace stagewright
