#include "planner_service/jobs/planning_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"

namespace stagewright {
namespace {

// On Linux this is of the thread alone, and of those that it starts. Who may not even be nicer
// plans all the same.
void BeNicer(int by) {
  const auto self = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + by);
}

}  // namespace

PlanningPool::PlanningPool(int threads, int queue_limit, int nicer, absl::Duration patience)
    : num_threads_(threads), queue_limit_(queue_limit), nicer_(nicer), patience_(patience) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  threads_.emplace_back([this] { RunForThoseWhoWait(); });
}

PlanningPool::~PlanningPool() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status PlanningPool::Full() const {
  // One place is likely to be free by then; who comes often must not come all at once.
  const auto waiting = static_cast<double>(queue_.size());
  return WithReason(WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                       "the planning queue is full (", queue_.size(),
                                       " waiting, limit ", queue_limit_, "); try again later")),
                                   absl::Seconds(1 + waiting / num_threads_)),
                    "PLANNING_QUEUE_FULL");
}

PlanningPool::Queue::iterator PlanningPool::WhoLeavesFor(absl::string_view caller) {
  absl::flat_hash_map<absl::string_view, int> counts;
  for (const Waiting& waiting : queue_) ++counts[waiting.work.caller];
  const auto of = [&](Queue::iterator it) { return counts[it->work.caller]; };
  auto leaves = queue_.end();
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (it->work.give_up == nullptr) continue;
    if (leaves == queue_.end() || of(it) >= of(leaves)) leaves = it;
  }
  if (leaves == queue_.end() || of(leaves) < counts[caller] + 2) return queue_.end();
  return leaves;
}

std::vector<PlanningPool::GiveUp> PlanningPool::TakeWhatIsOver() {
  std::vector<GiveUp> leaving;
  for (auto it = queue_.begin(); it != queue_.end();) {
    const auto next = std::next(it);
    if (it->work.is_over != nullptr && it->work.is_over()) leaving.push_back(Take(it).give_up);
    it = next;
  }
  return leaving;
}

// Idle threads take from the queue at once, so they count as room.
bool PlanningPool::IsFull() const {
  return static_cast<int>(queue_.size()) >= queue_limit_ + idle_;
}

absl::Status PlanningPool::Submit(Work work) {
  std::vector<GiveUp> leaving;
  absl::Status full, answer;
  {
    absl::MutexLock lock(&mutex_);
    if (IsFull()) {
      full = Full();
      leaving = TakeWhatIsOver();
    }
    if (IsFull()) {
      ++rejected_;
      const auto leaves = WhoLeavesFor(work.caller);
      if (leaves != queue_.end()) leaving.push_back(Take(leaves).give_up);
      if (leaves == queue_.end()) answer = full;
    }
    if (answer.ok()) {
      if (FirstOf(work.caller) == queue_.end()) turns_.push_back(work.caller);
      queue_.push_back({std::move(work), SteadyNow()});
    }
  }
  for (const GiveUp& give_up : leaving) give_up(full);
  return answer;
}

PlanningPool::Queue::iterator PlanningPool::FirstOf(absl::string_view caller) {
  return std::find_if(queue_.begin(), queue_.end(),
                      [&](const Waiting& waiting) { return waiting.work.caller == caller; });
}

PlanningPool::Work PlanningPool::Take(Queue::iterator waiting) {
  Work work = std::move(waiting->work);
  queue_.erase(waiting);
  if (FirstOf(work.caller) == queue_.end()) turns_.remove(work.caller);
  return work;
}

PlanningPool::Work PlanningPool::TakeOf(Turns::iterator caller) {
  turns_.splice(turns_.end(), turns_, caller);  // The next turn is another's.
  Work work = Take(FirstOf(*caller));
  ++running_[work.caller];
  return work;
}

void PlanningPool::RunAndEnd(const Work& work) {
  work.run();
  absl::MutexLock lock(&mutex_);
  const auto running = running_.find(work.caller);
  if (--running->second == 0) running_.erase(running);
}

int PlanningPool::queued() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(queue_.size());
}

int64_t PlanningPool::rejected() const {
  absl::MutexLock lock(&mutex_);
  return rejected_;
}

PlanningPool::Turns::iterator PlanningPool::Next() {
  return std::find_if(turns_.begin(), turns_.end(), [&](const std::string& caller) {
    mutex_.AssertHeld();
    const auto running = running_.find(caller);
    return running == running_.end() || running->second < num_threads_;
  });
}

PlanningPool::Turns::iterator PlanningPool::WhoHasWaited() {
  const absl::Time since = SteadyNow() - patience_;
  return std::find_if(turns_.begin(), turns_.end(), [&](const std::string& caller) {
    mutex_.AssertHeld();
    return !running_.contains(caller) && FirstOf(caller)->since <= since;
  });
}

void PlanningPool::Run() {
  BeNicer(nicer_);
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      ++idle_;
      mutex_.Await(absl::Condition(
          +[](PlanningPool* pool) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return pool->Next() != pool->turns_.end() || (pool->closing_ && pool->queue_.empty());
          },
          this));
      --idle_;
      if (queue_.empty()) return;
      work = TakeOf(Next());
    }
    RunAndEnd(work);
  }
}

void PlanningPool::RunForThoseWhoWait() {
  BeNicer(nicer_);
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](PlanningPool* pool)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return pool->closing_ || !pool->queue_.empty(); },
          this));
      if (closing_) return;
      const auto served = WhoHasWaited();
      if (served == turns_.end()) {
        AwaitFor(mutex_, absl::Condition(&closing_), patience_ / 8);
        continue;
      }
      work = TakeOf(served);
    }
    RunAndEnd(work);
  }
}

}  // namespace stagewright
