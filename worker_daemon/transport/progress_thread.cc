#include "worker_daemon/transport/progress_thread.h"

#include <utility>

#include "common/clock/steady_now.h"
#include "worker_daemon/transport/short_turns.h"

namespace stagewright {
namespace {

constexpr absl::Duration kPoll = absl::Microseconds(50);

}  // namespace

ProgressThread::ProgressThread() : thread_([this] { Loop(); }) {}

ProgressThread::~ProgressThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void ProgressThread::Run(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  has_tasks_.store(true, std::memory_order_relaxed);
}

void ProgressThread::Poll() const {
  const absl::Time end = SteadyNow() + kPoll;
  while (!has_tasks_.load(std::memory_order_relaxed) && SteadyNow() < end) {
    std::this_thread::yield();  // To those that have work, if there are more of them than cores.
  }
}

void ProgressThread::Loop() {
  AskForShortTurns();
  while (true) {
    std::deque<std::function<void()>> tasks;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &ProgressThread::HasWork));
      tasks.swap(tasks_);
      has_tasks_.store(false, std::memory_order_relaxed);
      if (tasks.empty()) return;
    }
    for (std::function<void()>& task : tasks) task();
    tasks.clear();
    Poll();
  }
}

}  // namespace stagewright
