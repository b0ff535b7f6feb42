#include "common/clock/steady_wait.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

using Clock = std::chrono::steady_clock;

// Between attempts to get hold of a mutex that is in use when somebody's time is over.
constexpr std::chrono::milliseconds kTryAgain{1};
// Longer than any program runs, and short enough to add to any moment.
constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 10);

// Wakes whoever waits for a time: unlocking a mutex has Abseil look at the conditions of those that
// wait for it. Locks are taken in the order of a waiter's mutex and this one's; the thread here,
// which holds its own first, only tries to get a waiter's.
class Alarm {
 public:
  struct Waiter {
    absl::Mutex* mutex;
    bool late = false;  // Guarded by the mutex.
  };
  using Waiters = std::multimap<Clock::time_point, Waiter*>;

  // Never destroyed: its thread runs until the program ends.
  static Alarm& Get() {
    static auto* const alarm = new Alarm;
    return *alarm;
  }

  Waiters::iterator Add(Clock::time_point time, Waiter* waiter) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (time < looks_at_) earlier_.notify_one();
    return waiters_.emplace(time, waiter);
  }
  // REQUIRES: the waiter's mutex is held, so that the waiter is not being woken.
  void Remove(Waiters::iterator place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiters_.erase(place);
  }

 private:
  Alarm() {
    std::thread([this] { Run(); }).detach();
  }

  [[noreturn]] void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      const Clock::time_point now = Clock::now();
      bool busy = false;
      auto next = waiters_.begin();
      for (; next != waiters_.end() && next->first <= now; ++next) {
        busy = !Wake(*next->second) || busy;
      }
      looks_at_ = next == waiters_.end() ? Clock::time_point::max() : next->first;
      if (busy) looks_at_ = std::min(looks_at_, now + kTryAgain);
      if (looks_at_ == Clock::time_point::max()) {
        earlier_.wait(lock);
      } else {
        earlier_.wait_until(lock, Clock::time_point(looks_at_));
      }
    }
  }

  // Whether nothing is left to do.
  static bool Wake(Waiter& waiter) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!waiter.mutex->TryLock()) return false;
    waiter.late = true;
    waiter.mutex->Unlock();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable earlier_;
  Waiters waiters_;
  // When the thread looks next by itself. Whoever was woken and has not got its mutex yet is still
  // among the waiters, so that the first of them does not say it.
  Clock::time_point looks_at_ = Clock::time_point::min();
};

}  // namespace

bool AwaitFor(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration patience) {
  if (patience == absl::InfiniteDuration()) {
    mutex.Await(condition);
    return true;
  }
  if (condition.Eval()) return true;
  const Clock::time_point time =
      Clock::now() + absl::ToChronoNanoseconds(std::min(patience, kLongest));
  Alarm::Waiter waiter{&mutex};
  const auto place = Alarm::Get().Add(time, &waiter);
  const auto over = [&] { return waiter.late || condition.Eval(); };
  mutex.Await(absl::Condition(&over));
  Alarm::Get().Remove(place);
  return condition.Eval();
}

bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, absl::Time deadline) {
  return AwaitFor(mutex, condition, deadline - SteadyNow());
}

void SteadyNotification::Notify() {
  absl::MutexLock lock(&mutex_);
  notified_ = true;
}

bool SteadyNotification::WaitFor(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  return AwaitFor(mutex_, absl::Condition(&notified_), patience);
}

}  // namespace stagewright
