#include "worker_daemon/transport/progress_thread.h"

#include <utility>

namespace stagewright {

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
}

void ProgressThread::Loop() {
  while (true) {
    std::deque<std::function<void()>> tasks;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &ProgressThread::HasWork));
      tasks.swap(tasks_);
      if (tasks.empty()) return;
    }
    for (std::function<void()>& task : tasks) task();
  }
}

}  // namespace stagewright
