#include "planner_service/jobs/job_watches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"
#include "planner_service/jobs/job_proto.h"

namespace stagewright {
namespace {

// A job that could not be fetched is asked for again after so long.
constexpr absl::Duration kAgain = absl::Seconds(1);

}  // namespace

JobWatches::JobWatches(Fetch fetch, absl::Duration interval)
    : fetch_(std::move(fetch)), interval_(interval), thread_([this] { Run(); }) {}

JobWatches::~JobWatches() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

int64_t JobWatches::Add(int64_t job, Watcher watcher) {
  absl::MutexLock lock(&mutex_);
  Watched& watched = jobs_[job];
  watched.watches[next_].watcher = std::move(watcher);
  watched.due = absl::InfinitePast();  // Those who come together are told together.
  job_of_[next_] = job;
  woken_ = true;
  return next_++;
}

void JobWatches::Remove(int64_t id) {
  absl::MutexLock telling(&telling_);
  absl::MutexLock lock(&mutex_);
  const auto it = job_of_.find(id);
  if (it == job_of_.end()) return;
  const auto watched = jobs_.find(it->second);
  watched->second.watches.erase(id);
  if (watched->second.watches.empty()) jobs_.erase(watched);
  job_of_.erase(it);
}

void JobWatches::Changed(int64_t job) {
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return;
  it->second.due = std::min(it->second.due, it->second.told + interval_);
  woken_ = true;
}

int64_t JobWatches::watchers() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(job_of_.size());
}

bool JobWatches::AwaitDue(int64_t& job) {
  while (!stopping_) {
    const auto next =
        std::min_element(jobs_.begin(), jobs_.end(),
                         [](const auto& a, const auto& b) { return a.second.due < b.second.due; });
    const absl::Time due = next == jobs_.end() ? absl::InfiniteFuture() : next->second.due;
    if (due <= SteadyNow()) {
      next->second.due = absl::InfiniteFuture();
      next->second.told = SteadyNow();
      job = next->first;
      return true;
    }
    woken_ = false;
    AwaitFor(mutex_,
             absl::Condition(
                 +[](JobWatches* self)
                      ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->stopping_ || self->woken_; },
                 this),
             due - SteadyNow());
  }
  return false;
}

void JobWatches::Run() {
  while (true) {
    int64_t job = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (!AwaitDue(job)) return;
    }
    Tell(job);
  }
}

void JobWatches::Tell(int64_t number) {
  const absl::StatusOr<Job> job = fetch_(number);
  if (absl::IsNotFound(job.status())) return TellGone(number);
  if (!job.ok()) {  // The store may not answer now.
    absl::MutexLock lock(&mutex_);
    if (const auto it = jobs_.find(number); it != jobs_.end())
      it->second.due = std::min(it->second.due, SteadyNow() + kAgain);
    return;
  }
  Snapshot snapshot;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = jobs_.find(number);
    if (it == jobs_.end()) return;
    snapshot = it->second.last;
  }
  // What clients see: everything but the graph, which they sent.
  if (snapshot == nullptr || snapshot->version() != job->version)
    snapshot = std::make_shared<const v1::Job>(ToProto(*job, GraphDetail::kNone));

  absl::MutexLock telling(&telling_);
  std::vector<const Watcher*> told;  // They stay while `telling_` is held.
  {
    absl::MutexLock lock(&mutex_);
    const auto it = jobs_.find(number);
    if (it == jobs_.end()) return;
    it->second.last = snapshot;
    for (auto& [id, watch] : it->second.watches) {
      if (watch.told >= snapshot->version()) continue;
      watch.told = snapshot->version();
      told.push_back(&watch.watcher);
    }
  }
  for (const Watcher* watcher : told) (*watcher)(snapshot);
}

void JobWatches::TellGone(int64_t number) {
  absl::MutexLock telling(&telling_);
  std::vector<const Watcher*> told;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = jobs_.find(number);
    if (it == jobs_.end()) return;
    for (const auto& [id, watch] : it->second.watches) told.push_back(&watch.watcher);
  }
  for (const Watcher* watcher : told) (*watcher)(nullptr);
}

}  // namespace stagewright
