// From a plan to the end of its run: what workers are told and what they answer.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner_service/jobs/job_manager.h"

namespace stagewright {
namespace {

// Steps whose actions are reported. The first ones pay for allocations and page faults, so replays
// use later ones.
constexpr int64_t kTracedSteps = 10;

}  // namespace

bool Runs(v1::JobState state) {
  return state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_RECOVERING;
}

bool OnWorkers(v1::JobState state) { return state == v1::JOB_STATE_STARTING || Runs(state); }

void JobManager::TryStart(Record& record) {
  const std::vector<std::string> devices(record.job.devices().begin(), record.job.devices().end());
  std::set<std::string> connected;
  for (const RegisteredDevice& device : registry_->Devices(/*free_only=*/false))
    connected.insert(device.QualifiedName());
  for (const std::string& device : devices) {
    if (connected.contains(device)) continue;
    Transition(record, v1::JOB_STATE_PENDING,
               absl::StrCat("device ", device, " is gone; planning again"));
    if (!IsTerminal(record.job.state())) StartPlanning(record);
    return;
  }
  if (absl::Status status = registry_->Allocate(record.job.name(), devices); !status.ok()) {
    if (record.job.message() != status.message()) {
      Transition(record, v1::JOB_STATE_WAITING_FOR_DEVICES, std::string(status.message()));
    }
    return;
  }
  record.prepared.clear();
  record.connected.clear();
  record.finished.clear();
  record.lost.clear();
  record.addresses.clear();
  record.shards.clear();
  record.steps.clear();
  record.step_times = {};
  record.evaluated = record.predicted = record.correct = 0;
  record.evaluation_loss = 0;
  record.stopped_after = 0;
  record.checkpoints = {};
  record.given_up = false;
  record.job.set_generation(record.job.generation() + 1);
  Transition(record, v1::JOB_STATE_STARTING, "preparing workers");
  if (IsTerminal(record.job.state())) return registry_->Release(record.job.name());
  record.deadline = absl::Now() + options_.starting_timeout;
  SendPrepare(record);
}

void JobManager::SendPrepare(Record& record) {
  v1::ConnectResponse message;
  v1::Prepare* prepare = message.mutable_prepare();
  prepare->set_job(record.job.name());
  prepare->set_generation(record.job.generation());
  *prepare->mutable_spec() = record.job.spec();
  *prepare->mutable_cluster() = record.cluster;
  *prepare->mutable_program() = record.job.plan().program();
  if (record.evaluation_program.devices_size() > 0) {
    *prepare->mutable_evaluation_program() = record.evaluation_program;
  }
  for (int i = 0; i < record.job.plan().lengths_size(); ++i) {
    v1::LengthPrograms* programs = prepare->add_lengths();
    *programs->mutable_program() = record.job.plan().lengths(i).program();
    if (record.evaluation_program.devices_size() > 0)
      *programs->mutable_evaluation_program() = record.length_evaluation_programs[i];
  }
  prepare->set_restart(record.job.restarts() > 0);
  for (int64_t step = 0; step < kTracedSteps; ++step) prepare->add_traced_steps(step);
  for (const auto& [worker, indices] : record.worker_devices) {
    prepare->clear_devices();
    prepare->clear_device_names();
    for (int32_t index : indices) {
      const std::string& qualified = record.job.devices(index);
      prepare->add_devices(index);
      prepare->add_device_names(qualified.substr(qualified.find('/') + 1));
    }
    registry_->Send(worker, message);
  }
}

absl::StatusOr<int64_t> JobManager::Register(const v1::Register& message,
                                             const WorkerRegistry::Sink& sink) {
  // Under the lock, so that devices of a job that runs on cannot be given to another one first.
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const int64_t session, registry_->Register(message, sink, absl::Now()));
  v1::ConnectResponse welcome;
  welcome.mutable_registered()->set_heartbeat_interval_ns(
      absl::ToInt64Nanoseconds(options_.worker_timeout / 4));
  sink(welcome);
  std::set<std::string> resumed;
  for (const v1::RunningJob& run : message.running()) {
    Record* record = FindRun(message.worker(), run.job(), run.generation());
    if (record != nullptr && Resume(*record, message.worker())) {
      resumed.insert(run.job());
      continue;
    }
    v1::ConnectResponse abort;  // An old generation: stop and wipe.
    abort.mutable_abort()->set_job(run.job());
    abort.mutable_abort()->set_generation(run.generation());
    abort.mutable_abort()->set_reason("this generation of the job is over");
    sink(abort);
  }
  for (auto& [number, record] : jobs_) {
    if (record.job.state() == v1::JOB_STATE_RECOVERING && record.lost.contains(message.worker()) &&
        !resumed.contains(record.job.name())) {
      End(record, v1::JOB_STATE_FAILED,
          absl::StrCat(record.job.message(), "; worker ", message.worker(),
                       " came back without the job"));
    }
  }
  Advance();
  return session;
}

bool JobManager::Resume(Record& record, const std::string& worker) {
  if (!record.lost.contains(worker)) return false;
  std::vector<std::string> devices;
  for (const std::string& device : record.job.devices()) {
    if (device.substr(0, device.find('/')) == worker) devices.push_back(device);
  }
  if (!registry_->Allocate(record.job.name(), devices).ok()) return false;
  record.lost.erase(worker);
  if (record.lost.empty()) Transition(record, v1::JOB_STATE_RUNNING, "");
  return true;
}

void JobManager::OnLost(const std::string& worker, const std::string& why) {
  absl::MutexLock lock(&mutex_);
  if (suspended_) return;
  for (auto& [number, record] : jobs_) {
    if (!OnWorkers(record.job.state()) || !record.worker_devices.contains(worker) ||
        record.lost.contains(worker))
      continue;
    if (record.job.state() == v1::JOB_STATE_STARTING) {
      FailOrRestart(record, absl::StrCat("worker ", worker, " was lost while starting: ", why));
      continue;
    }
    if (record.given_up) {
      FailOrRestart(record, absl::StrCat("worker ", worker, " was lost after step ",
                                         record.job.metrics().step(), ": ", why));
      continue;
    }
    // It may run on and come back. If it died, the devices it exchanged messages with say so before
    // long.
    record.lost.insert(worker);
    Transition(record, v1::JOB_STATE_RECOVERING,
               absl::StrCat("worker ", worker, " was lost after step ", record.job.metrics().step(),
                            ": ", why));
    record.deadline = absl::Now() + options_.worker_timeout;
  }
}

void JobManager::OnMessage(const std::string& worker, const v1::ConnectRequest& message) {
  absl::MutexLock lock(&mutex_);
  switch (message.message_case()) {
    case v1::ConnectRequest::kPrepared:
      return Handle(worker, message.prepared());
    case v1::ConnectRequest::kConnected:
      return Handle(worker, message.connected());
    case v1::ConnectRequest::kProgress:
      return Handle(worker, message.progress());
    case v1::ConnectRequest::kFinished:
      return Handle(worker, message.finished());
    case v1::ConnectRequest::kMerged:
      return Handle(worker, message.merged());
    case v1::ConnectRequest::kFailed:
      return Handle(worker, message.failed());
    case v1::ConnectRequest::kShardWritten:
      return Handle(worker, message.shard_written());
    case v1::ConnectRequest::kCheckpointWritten:
      return Handle(worker, message.checkpoint_written());
    case v1::ConnectRequest::kStepsSoFar:
      return Handle(worker, message.steps_so_far());
    case v1::ConnectRequest::kRegister:
    case v1::ConnectRequest::kHeartbeat:
    case v1::ConnectRequest::MESSAGE_NOT_SET:
      return;  // The service's own affair.
  }
}

void JobManager::Handle(const std::string& worker, const v1::Prepared& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || record->job.state() != v1::JOB_STATE_STARTING) return;
  if (!record->prepared.empty() && message.total_steps() != record->total_steps) {
    return End(*record, v1::JOB_STATE_FAILED,
               absl::StrCat("workers disagree on the data: worker ", worker, " counts ",
                            message.total_steps(), " steps, others ", record->total_steps));
  }
  if (!record->prepared.empty() && message.first_step() != record->first_step) {
    return End(*record, v1::JOB_STATE_FAILED,
               absl::StrCat("workers disagree on where to resume: worker ", worker, " after step ",
                            message.first_step(), " (", message.resumed_from(), "), worker ",
                            *record->prepared.begin(), " after step ", record->first_step));
  }
  record->first_step = message.first_step();
  for (const std::string& warning : message.warnings()) {
    const auto& known = record->job.warnings();
    if (std::find(known.begin(), known.end(), warning) == known.end())
      record->job.add_warnings(warning);
  }
  record->total_steps = message.total_steps();
  record->prepared.insert(worker);
  for (const v1::DeviceAddress& address : message.addresses()) {
    record->addresses[address.device()] = address.address();
  }
  if (record->prepared.size() < record->worker_devices.size()) return;

  v1::ConnectResponse connect;
  connect.mutable_connect_peers()->set_job(message.job());
  connect.mutable_connect_peers()->set_generation(message.generation());
  for (const auto& [device, address] : record->addresses) {
    v1::DeviceAddress* out = connect.mutable_connect_peers()->add_addresses();
    out->set_device(device);
    out->set_address(address);
  }
  SendToAll(*record, connect);
}

void JobManager::Handle(const std::string& worker, const v1::Connected& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || record->job.state() != v1::JOB_STATE_STARTING) return;
  record->connected.insert(worker);
  if (record->connected.size() < record->worker_devices.size()) return;
  record->job.mutable_metrics()->set_total_steps(record->total_steps);
  record->reported = record->first_step;
  if (!record->history.empty()) {
    record->history.DropAfter(record->first_step);
    record->write_steps = absl::Now();  // With the transition: the store must not know them either.
  }
  record->checkpoints.last = absl::Now();
  Transition(*record, v1::JOB_STATE_RUNNING, "");
  if (IsTerminal(record->job.state())) {
    SendToAll(*record, AbortOf(record->job));
    registry_->Release(record->job.name());
    return Advance();
  }
  v1::ConnectResponse start;
  start.mutable_start()->set_job(message.job());
  start.mutable_start()->set_generation(message.generation());
  SendToAll(*record, start);
}

void JobManager::Handle(const std::string& worker, const v1::Finished& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || !Runs(record->job.state())) return;
  if (!record->finished.insert(worker).second) return;
  for (const std::string& shard : message.shards()) record->shards.push_back(shard);
  if (message.stopped_after_step() > 0) record->stopped_after = message.stopped_after_step();
  record->evaluated += message.evaluated_samples();
  record->predicted += message.predicted_samples();
  record->correct += message.correct_samples();
  record->evaluation_loss += message.evaluation_loss();
  if (record->finished.size() < record->worker_devices.size()) return;

  v1::JobMetrics* metrics = record->job.mutable_metrics();
  if (record->evaluated > 0) metrics->set_evaluation_loss(record->evaluation_loss);
  if (record->predicted > 0) {
    metrics->set_accuracy(static_cast<double>(record->correct) /
                          static_cast<double>(record->predicted));
  }
  std::sort(record->shards.begin(), record->shards.end());
  v1::ConnectResponse merge;
  merge.mutable_merge()->set_job(message.job());
  merge.mutable_merge()->set_generation(message.generation());
  for (const std::string& shard : record->shards) merge.mutable_merge()->add_shards(shard);
  merge.mutable_merge()->set_checkpoint_path(record->job.spec().output_path() +
                                             "/model.safetensors");
  registry_->Send(record->worker_devices.begin()->first, merge);
}

void JobManager::Handle(const std::string& worker, const v1::Merged& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || !Runs(record->job.state())) return;
  record->job.set_checkpoint_path(message.checkpoint_path());
  End(*record, v1::JOB_STATE_SUCCEEDED,
      record->stopped_after == 0 ? std::string()
                                 : absl::StrCat("stopped early after step ", record->stopped_after,
                                                ": the evaluation loss got no better"));
}

void JobManager::Handle(const std::string& worker, const v1::Failed& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr) return;
  // What the others say of a lost worker is an echo of its loss.
  const bool echo = record->job.state() == v1::JOB_STATE_RECOVERING;
  const std::string text = absl::StrCat(echo ? absl::StrCat(record->job.message(), "; ") : "",
                                        "worker ", worker, ": ", message.message());
  if (echo && record->given_up) return;  // Another echo, while the loss is waited for.
  if (AwaitLoss(*record, message, text)) return;
  if (echo && !record->lost.empty()) return FailOrRestart(*record, text);
  record->job.set_failure_code(message.code());
  End(*record, v1::JOB_STATE_FAILED, text);
}

void JobManager::Tick(absl::Time now) {
  for (const auto& [worker, session] : registry_->Silent(now - options_.worker_timeout)) {
    if (registry_->Unregister(worker, session)) {
      OnLost(worker,
             absl::StrCat("no heartbeat for ", absl::FormatDuration(options_.worker_timeout)));
    }
  }
  absl::MutexLock lock(&mutex_);
  for (auto& [number, record] : jobs_) {
    if (now >= record.write_steps) WriteSteps(record);
    if (IsTerminal(record.job.state()) || now < record.deadline) continue;
    if (record.job.state() == v1::JOB_STATE_STARTING) {
      std::vector<std::string> waiting;
      const auto& answered = record.connected.empty() ? record.prepared : record.connected;
      for (const auto& [worker, devices] : record.worker_devices) {
        if (!answered.contains(worker)) waiting.push_back(worker);
      }
      End(record, v1::JOB_STATE_FAILED,
          absl::StrCat("not started in time: no answer from ", absl::StrJoin(waiting, ", ")));
    } else if (record.given_up) {
      End(record, v1::JOB_STATE_FAILED, record.job.message());  // No worker was lost after all.
    } else {
      FailOrRestart(record, absl::StrCat(record.job.message(), "; did not come back: ",
                                         absl::StrJoin(record.lost, ", ")));
    }
  }
  Advance();
}

}  // namespace stagewright
