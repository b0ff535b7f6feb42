#include "planner_service/jobs/planning_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "common/base/error_details.h"

namespace stagewright {
namespace {

// On Linux this is of the thread alone, and of those that it starts. Who may not even be nicer
// plans all the same.
void BeNicer(int by) {
  const auto self = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + by);
}

}  // namespace

PlanningPool::PlanningPool(int threads, int queue_limit, int nicer)
    : queue_limit_(queue_limit), nicer_(nicer) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

PlanningPool::~PlanningPool() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status PlanningPool::Submit(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  // Idle threads take from the queue at once, so they count as room.
  if (static_cast<int>(queue_.size()) >= queue_limit_ + idle_) {
    ++rejected_;
    // One place is likely to be free by then; who comes often must not come all at once.
    return WithReason(
        WithRetryAfter(absl::ResourceExhaustedError(
                           absl::StrCat("the planning queue is full (", queue_.size(),
                                        " waiting, limit ", queue_limit_, "); try again later")),
                       absl::Seconds(1) * (1 + static_cast<double>(queue_.size()) /
                                                   static_cast<double>(threads_.size()))),
        "PLANNING_QUEUE_FULL");
  }
  queue_.push_back(std::move(work));
  return absl::OkStatus();
}

int PlanningPool::queued() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(queue_.size());
}

int64_t PlanningPool::rejected() const {
  absl::MutexLock lock(&mutex_);
  return rejected_;
}

void PlanningPool::Run() {
  BeNicer(nicer_);
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      ++idle_;
      mutex_.Await(absl::Condition(
          +[](PlanningPool* pool)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return pool->closing_ || !pool->queue_.empty(); },
          this));
      --idle_;
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace stagewright
