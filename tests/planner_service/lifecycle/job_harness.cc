#include "tests/planner_service/lifecycle/job_harness.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/wire/job_state.h"
#include "planner_service/jobs/job_proto.h"

namespace stagewright::testing {
namespace {

std::vector<v1::Event> OfKind(v1::EventKind kind,
                              const google::protobuf::RepeatedPtrField<v1::Event>& events) {
  std::vector<v1::Event> chosen;
  std::copy_if(events.begin(), events.end(), std::back_inserter(chosen),
               [kind](const v1::Event& event) { return event.kind() == kind; });
  return chosen;
}

}  // namespace

v1::ConnectRequest Progress(const std::string& job, int64_t generation, int64_t step,
                            int32_t device) {
  v1::ConnectRequest message;
  v1::Progress* progress = message.mutable_progress();
  progress->set_job(job);
  progress->set_generation(generation);
  progress->set_step(step);
  progress->add_devices()->set_device(device);
  progress->mutable_devices(0)->set_step_ns(1'000'000);
  return message;
}

JobHarness::JobHarness(RecordingStore* recording, JobManagerOptions options)
    : store(recording),
      profiles(store),
      // However long a test keeps the only thread, nothing else is planned.
      pool(1, 4, PlanningPool::kNicer, absl::InfiniteDuration()) {
  options.on_change = [this](const Job& job) {
    const v1::JobState state = ToProto(job.state);
    if (store->State(job.name()) != state) announced_before_stored = true;
    const std::pair<std::string, v1::JobState> change(job.name(), state);
    const auto last = std::find_if(announced.rbegin(), announced.rend(),
                                   [&](const auto& c) { return c.first == job.name(); });
    if (last == announced.rend() || last->second != state) announced.push_back(change);
  };
  jobs = std::make_unique<JobManager>(store, &profiles, &registry, &pool, options);
  CHECK(jobs->Recover().ok());
}

JobHarness::~JobHarness() { jobs.reset(); }

void JobHarness::Connect(const std::string& name,
                         const std::vector<std::pair<std::string, int64_t>>& running,
                         int64_t flush_after) {
  v1::Register message;
  message.set_worker(name);
  message.set_proves_key(!without_keys.contains(name));
  message.set_host_address("127.0.0.1");
  message.set_software("torch");
  v1::DeviceKind* kind = message.add_kinds();
  kind->set_name("cpu");
  // So slow that plans use all devices.
  kind->set_flops_per_second(1e6);
  kind->set_memory_bytes_per_second(1e7);
  v1::Device* device = message.add_devices();
  device->set_name("cpu0");
  device->set_memory_bytes(int64_t{1} << 30);
  for (const auto& [job, generation] : running) {
    message.add_running()->set_job(job);
    message.mutable_running()->rbegin()->set_generation(generation);
    message.mutable_running()->rbegin()->add_device_names("cpu0");
    message.mutable_running()->rbegin()->set_flush_after(flush_after);
  }
  std::unique_ptr<FakeWorker>& worker = workers_[name];
  if (worker == nullptr) worker = std::make_unique<FakeWorker>();
  message.set_keeps_graphs(worker->keeps_graphs);
  worker->name = name;
  FakeWorker* raw = worker.get();
  auto session = jobs->Register(message, [this, raw](const v1::ConnectResponse& response) {
    absl::MutexLock lock(&mutex_);
    raw->inbox.push_back(response);
    raw->heard.push_back(response);
    return true;
  });
  CHECK(session.ok());
  raw->session = *session;
  raw->connected = true;
}

void JobHarness::Disconnect(const std::string& name) {
  FakeWorker& worker = Worker(name);
  worker.connected = false;
  jobs->OnLost(name, worker.session, "its connection ended");
}

void JobHarness::Heartbeats(absl::Time now) {
  for (const v1::Worker& worker : registry.List())
    registry.Heartbeat(worker.name(), Worker(worker.name()).session, now);
}

void JobHarness::PassUntil(absl::Time time) {
  passed_ = std::min(std::max(passed_, absl::Now()), time);
  do {
    passed_ = std::min(passed_ + absl::Milliseconds(500), time);
    Heartbeats(passed_);
    jobs->Tick(passed_);
  } while (passed_ < time);
}

void JobHarness::Pump() {
  bool again = true;
  while (again) {
    again = false;
    for (auto& [name, worker] : workers_) {
      v1::ConnectResponse message;
      {
        absl::MutexLock lock(&mutex_);
        if (worker->inbox.empty()) continue;
        message = std::move(worker->inbox.front());
        worker->inbox.pop_front();
      }
      again = true;
      if (worker->loses_told.erase(message.message_case()) > 0) {
        BreakStream(*worker);
        continue;
      }
      if (!worker->silent_on.contains(message.message_case())) Answer(*worker, message);
    }
  }
}

void JobHarness::BreakStream(FakeWorker& worker) {
  Disconnect(worker.name);
  {
    absl::MutexLock lock(&mutex_);
    worker.inbox.clear();
  }
  if (worker.job.empty()) return Connect(worker.name);
  Connect(worker.name, {{worker.job, worker.generation}});
  if (worker.last_report.has_value()) jobs->OnMessage(worker.name, *worker.last_report);
}

void JobHarness::Say(FakeWorker& worker, const v1::ConnectRequest& message) {
  if (!message.has_progress() && !message.has_run_ended()) worker.last_report = message;
  if (worker.loses_said.erase(message.message_case()) > 0) return BreakStream(worker);
  jobs->OnMessage(worker.name, message);
}

void JobHarness::Answer(FakeWorker& worker, const v1::ConnectResponse& message) {
  v1::ConnectRequest answer;
  const bool repeated = (message.has_start() || message.has_merge()) &&
                        !worker.begun.insert(message.message_case()).second;
  if (repeated) return;
  if (message.has_abort() || message.has_release()) worker.job.clear();
  if (message.has_needed_graph()) {
    if (!worker.graphs.insert(message.needed_graph().graph_sha256()).second || !worker.waits)
      return;
    v1::ConnectResponse prepare;
    *prepare.mutable_prepare() = *std::exchange(worker.waits, std::nullopt);
    return Answer(worker, prepare);
  }
  const std::string& sha256 = message.prepare().graph_sha256();
  if (!sha256.empty() && !worker.graphs.contains(sha256)) {
    worker.waits = message.prepare();
    answer.mutable_graph_needed()->set_job(message.prepare().job());
    answer.mutable_graph_needed()->set_generation(message.prepare().generation());
    answer.mutable_graph_needed()->set_graph_sha256(sha256);
  } else if (message.has_prepare()) {
    worker.job = message.prepare().job();
    worker.generation = message.prepare().generation();
    worker.begun.clear();
    worker.last_report.reset();
    devices_[worker.name].clear();
    for (const auto& device : message.prepare().program().devices()) {
      const auto& mine = message.prepare().devices();
      if (std::find(mine.begin(), mine.end(), device.device()) != mine.end())
        devices_[worker.name].push_back(device.device());
    }
    if (worker.refusal.empty()) {
      answer.mutable_prepared()->set_job(message.prepare().job());
      answer.mutable_prepared()->set_generation(message.prepare().generation());
      answer.mutable_prepared()->set_total_steps(worker.total_steps);
    } else {
      answer.mutable_failed()->set_job(message.prepare().job());
      answer.mutable_failed()->set_generation(message.prepare().generation());
      answer.mutable_failed()->set_message(worker.refusal);
      answer.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    }
  } else if (message.has_connect_peers()) {
    answer.mutable_connected()->set_job(message.connect_peers().job());
    answer.mutable_connected()->set_generation(message.connect_peers().generation());
  } else if (message.has_start()) {
    return Train(worker, message.start().job(), message.start().generation());
  } else if (message.has_merge()) {
    answer.mutable_merged()->set_job(message.merge().job());
    answer.mutable_merged()->set_generation(message.merge().generation());
    answer.mutable_merged()->set_checkpoint_path(message.merge().checkpoint_path());
  } else if (message.has_abort()) {
    answer.mutable_run_ended()->set_job(message.abort().job());
    answer.mutable_run_ended()->set_generation(message.abort().generation());
  } else if (message.has_release()) {
    answer.mutable_run_ended()->set_job(message.release().job());
    answer.mutable_run_ended()->set_generation(message.release().generation());
  } else {
    return;
  }
  Say(worker, answer);
}

void JobHarness::Train(FakeWorker& worker, const std::string& job, int64_t generation) {
  for (int64_t step = 1; step <= worker.total_steps; ++step) {
    v1::ConnectRequest message;
    v1::Progress* progress = message.mutable_progress();
    progress->set_job(job);
    progress->set_generation(generation);
    progress->set_step(step);
    for (int32_t device : devices_[worker.name]) {
      v1::DeviceProgress* own = progress->add_devices();
      own->set_device(device);
      own->set_loss(0.5);
      own->set_step_ns(1'000'000 * step);
      own->set_learning_rate(0.1);
      v1::TraceEvent* event = progress->add_trace();
      event->set_device(device);
      event->set_step(static_cast<int32_t>(step - 1));
      event->set_start_ns(step * 1000 + device);
      event->set_end_ns(step * 1000 + 500);
    }
    Say(worker, message);
  }
  v1::ConnectRequest message;
  message.mutable_finished()->set_job(job);
  message.mutable_finished()->set_generation(generation);
  message.mutable_finished()->add_shards("shard-" + worker.name);
  message.mutable_finished()->set_predicted_samples(10);
  message.mutable_finished()->set_correct_samples(9);
  Say(worker, message);
}

void JobHarness::Step(const std::string& job, int64_t step) {
  const v1::Job present = Get(job);
  for (const auto& program : present.plan().program().devices()) {
    const std::string& device = present.devices(program.device());
    jobs->OnMessage(device.substr(0, device.find('/')),
                    Progress(job, present.generation(), step, program.device()));
  }
}

v1::Job JobHarness::Await(const std::string& job, v1::JobState state) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (true) {
    // Before pumping: a state that the workers' next answers would end must be seen.
    v1::Job present = Get(job);
    if (present.state() == state || IsTerminal(present.state()) || absl::Now() > deadline)
      return present;
    Pump();
    absl::SleepFor(absl::Milliseconds(1));
  }
}

std::vector<v1::Job> JobHarness::List(int page_size, std::string* token) const {
  v1::ListJobsRequest request;
  request.set_page_size(page_size);
  if (token != nullptr) request.set_page_token(*token);
  const auto page = jobs->List(request);
  CHECK(page.ok());
  if (token != nullptr) *token = page->next_page_token();
  return {page->jobs().begin(), page->jobs().end()};
}

std::string JobHarness::Submit(const v1::JobSpec& spec, const std::string& request_id) {
  v1::JobSpec own = spec;
  // No two jobs may write to one place at the same time.
  static std::atomic<int> submitted{0};
  own.set_output_path(absl::StrCat(spec.output_path(), "-",
                                   request_id.empty() ? absl::StrCat(++submitted) : request_id));
  auto job = jobs->Submit(own, request_id);
  CHECK(job.ok());
  return job->name();
}

void JobHarness::HoldPlanning(const absl::Notification& go) {
  absl::Notification busy;
  CHECK(pool.Submit([&] {
              busy.Notify();
              go.WaitForNotification();
            })
            .ok());
  busy.WaitForNotification();
}

int JobHarness::Heard(const std::string& worker, v1::ConnectResponse::MessageCase kind) {
  absl::MutexLock lock(&mutex_);
  const auto& heard = workers_[worker]->heard;
  return static_cast<int>(std::count_if(heard.begin(), heard.end(),
                                        [&](const auto& m) { return m.message_case() == kind; }));
}

std::vector<v1::Event> JobHarness::Events(const std::string& job, v1::EventKind kind) const {
  return OfKind(kind, Get(job).events());
}

std::vector<v1::Event> JobHarness::WorkerEvents(v1::EventKind kind) const {
  return OfKind(kind, jobs->Workers(/*events=*/true).events());
}

}  // namespace stagewright::testing
