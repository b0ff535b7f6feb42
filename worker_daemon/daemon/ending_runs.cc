#include "worker_daemon/daemon/ending_runs.h"

#include <algorithm>
#include <utility>

namespace stagewright {

EndingRuns::~EndingRuns() {
  std::list<Entry> last;
  {
    absl::MutexLock lock(&mutex_);
    last.splice(last.end(), entries_);
    // Threads note in their entries that they have ended, with the lock.
  }
  for (Entry& entry : last) entry.thread.join();
}

void EndingRuns::Add(std::unique_ptr<WorkerRun> run) {
  absl::MutexLock lock(&mutex_);
  Reap();
  Entry& entry = entries_.emplace_back();
  entry.run.set_job(run->job());
  entry.run.set_generation(run->generation());
  entry.run.set_ending(true);
  for (const std::string& device : run->device_names()) entry.run.add_device_names(device);
  entry.thread = std::thread([this, &entry, run = std::move(run)]() mutable {
    const std::string job = run->job();
    const int64_t generation = run->generation();
    run.reset();
    {
      absl::MutexLock ended(&mutex_);
      entry.ended = true;
    }
    on_ended_(job, generation);
  });
}

void EndingRuns::Reap() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    // What is left to a thread that has ended its run is short and waits for no lock of ours.
    if (it->ended) it->thread.join();
    it = it->ended ? entries_.erase(it) : std::next(it);
  }
}

std::vector<v1::RunningJob> EndingRuns::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::RunningJob> runs;
  for (const Entry& entry : entries_) {
    if (!entry.ended) runs.push_back(entry.run);
  }
  return runs;
}

bool EndingRuns::Has(const std::string& job, int64_t generation) const {
  const std::vector<v1::RunningJob> runs = List();
  return std::any_of(runs.begin(), runs.end(), [&](const v1::RunningJob& run) {
    return run.job() == job && run.generation() == generation;
  });
}

}  // namespace stagewright
