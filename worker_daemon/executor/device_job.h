// Everything that one device needs to run its part of a job. Plain data; no LibTorch, no gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/training/training_spec.h"
#include "worker_daemon/checkpoint/checkpoint.h"
#include "worker_daemon/data/sampler.h"
#include "worker_daemon/device/device_clock.h"
#include "worker_daemon/executor/step_report.h"

namespace stagewright {

class DeviceStreams;

// What a device wrote of a checkpoint, or why it did not.
struct CheckpointReport {
  int64_t step = 0;      // Steps done.
  absl::Status status;   // If not OK, this checkpoint cannot be completed; training goes on.
  bool skipped = false;  // It was due while the one before was being written.
  std::vector<CheckpointFile> files;
  absl::Duration stall;  // For which training waited until the share could be taken.
};

// For comparing a plan with a single device: what a job keeps of its first steps, or compares them
// with (step_record.h).
struct StepRecords {
  int64_t steps = 0;        // The job ends after them; 0: nothing is kept.
  std::string output_path;  // Where the records are.
  bool compare = false;     // They are another job's, made by another plan.
};

// What runs for samples of one shape.
struct LengthSpec {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Program> program, evaluation;  // As in DeviceJob.
};

struct DeviceJob {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Program> program;     // Trains.
  std::shared_ptr<const Program> evaluation;  // Does not; same stages. Null: no evaluation.
  // Graph and programs for samples of other shapes (common/graph/lengths.h): a step runs the
  // program of its samples. Same stages on the same devices.
  std::vector<LengthSpec> lengths;
  DeviceId device;
  std::string torch_device = "cpu";  // As LibTorch names it: "cpu", "cuda:1".
  // Tells when actions ran; null: the clock of `torch_device`, if it has one of its own.
  std::shared_ptr<DeviceClock> clock;
  // What runs beside compute on `torch_device`; null: its own streams, if it is no CPU.
  std::shared_ptr<DeviceStreams> streams;
  Bytes memory_budget = 0;  // Memory of the device, for texts of errors; 0: unknown.
  // Above 0: tensors of the job on a CPU that would take more than this fail as if memory had run
  // out. Otherwise the machine is the limit.
  Bytes memory_limit = 0;

  std::string weights_path;  // `.safetensors` with the graph's parameters.
  std::string data_path;     // `.safetensors` with the graph's inputs.
  // `.safetensors` with the graph's inputs for `evaluation`, which needs it.
  std::string evaluation_path;

  // How the job trains. Its evaluations need `evaluation`; when to save is for `checkpoint_due`.
  TrainingSpec training;
  int64_t steps = 1;
  uint64_t seed = 0;  // Keys the order of samples and dropout.
  SampleOrder order = SampleOrder::kShuffled;
  absl::Duration step_timeout = absl::Seconds(60);  // A step that takes longer hangs.
  double loss_weight = 1.0;  // Multiplies the gradient of the loss; 1 is PyTorch's.

  // The job goes on from here instead of from `weights_path` and step 0. May be null.
  std::shared_ptr<const Checkpoint> resume;
  // Where checkpoints are written, and whether they still may be; may be empty.
  std::string checkpoint_root;
  std::function<absl::Status()> may_write;
  RunGeneration writer;
  // Whether this device saves its share now that so many steps are done; the same on all devices of
  // the job. Called after each step but the last, on the thread that runs the job. May be empty.
  std::function<bool(int64_t steps)> checkpoint_due;
  // It goes on only when its share is written, or cannot be in half of `step_timeout`.
  bool await_checkpoints = false;
  // What came of it, from any thread.
  std::function<void(CheckpointReport)> on_checkpoint;

  // Whether the device waits once it has saved its share, as the last `checkpoint_due` decided, and
  // what it then calls before the next step, which returns when that may begin. May be empty.
  std::function<bool()> holds;
  std::function<void()> await_go_on;
  // Asynchronous programs: the smallest number of steps done, above `step`, after which the
  // pipeline runs empty to be saved; no more than `step` + 2 are final by then. The same on all
  // devices of the job. Called before step `step`, from 0, begins; waits where that is not settled.
  // May be empty: none.
  std::function<int64_t(int64_t step)> flush_after;
  // Whether operators are timed in a step; called on the thread that runs the job. May be empty.
  std::function<bool(int64_t step)> time_operators;

  StepRecords records;

  // Called on the thread that runs the job, between steps. May be empty.
  std::function<void(StepReport)> on_step;
  std::function<void(const EvaluationReport&)> on_evaluation;
};

// What runs for all samples: for those of DeviceJob::graph first, then those of `lengths`.
std::vector<LengthSpec> AllLengths(const DeviceJob& spec);

// The programs of all lengths, for training and evaluation.
std::vector<const Program*> ProgramsOf(const DeviceJob& spec);

// The numbers that messages of a program have for channels and reductions: [0, this).
uint32_t ChannelsOf(const Program& program);

// Peak memory of the job's device by the largest of its programs.
Bytes PredictedPeak(const DeviceJob& spec);

// Evaluations come between steps, not only after the last.
bool EvaluatesInBetween(const DeviceJob& spec);

// INVALID_ARGUMENT unless the programs of all lengths do the same work on the same devices, so that
// their steps can follow each other.
absl::Status CheckLengths(const DeviceJob& spec);

// The devices that `device` exchanges messages with, ascending: the peers of its transport.
std::vector<int> PeersOf(const DeviceJob& spec);

// Those of them that stages of `device` give tensors to or get them from, ascending: the others
// only sum with it. Who is a neighbour of one has that one for a neighbour.
std::vector<int> NeighboursOf(const DeviceJob& spec);

// The lists of devices that sum gradients or gather parameters in any of the job's programs, equal
// for all devices of the job: for Transport::OpenCollectives.
std::vector<std::vector<int>> CollectivesOf(const DeviceJob& spec);

}  // namespace stagewright
