#include "worker_daemon/daemon/ending_runs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"

namespace stagewright {

EndingRuns::EndingRuns(OnEnded on_ended, OnStuck on_stuck, absl::Duration patience)
    : on_ended_(std::move(on_ended)),
      on_stuck_(std::move(on_stuck)),
      patience_(patience),
      watch_([this] { Watch(); }) {}

EndingRuns::~EndingRuns() {
  std::list<Entry> last;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  watch_.join();
  {
    absl::MutexLock lock(&mutex_);
    last.splice(last.end(), entries_);
    // Threads note in their entries that they have ended, with the lock.
  }
  for (Entry& entry : last) entry.thread.join();
}

absl::Time EndingRuns::NextStuck() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Entry& entry : entries_) {
    if (!entry.ended) next = std::min(next, entry.stuck_at);
  }
  return next;
}

void EndingRuns::Watch() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Time next = NextStuck();
    const auto woken = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return stopping_ || NextStuck() != next;
    };
    if (AwaitUntil(mutex_, absl::Condition(&woken), next)) continue;
    for (Entry& entry : entries_) {
      if (entry.ended || entry.stuck_at > next) continue;
      entry.stuck_at = absl::InfiniteFuture();
      const std::string job = entry.run.job();
      const std::string devices = absl::StrJoin(entry.run.device_names(), ", ");
      mutex_.Unlock();
      on_stuck_(job, devices);
      mutex_.Lock();
      break;  // Entries may have come and gone.
    }
  }
}

void EndingRuns::Add(std::unique_ptr<WorkerRun> run, bool on_accelerator) {
  absl::MutexLock lock(&mutex_);
  Reap();
  Entry& entry = entries_.emplace_back();
  if (on_accelerator) entry.stuck_at = SteadyNow() + patience_;
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
