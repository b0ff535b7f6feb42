#include "worker_daemon/daemon/outbox.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"

namespace stagewright {
namespace {

bool Replaceable(const v1::ConnectRequest& message) {
  return message.has_progress() && message.progress().trace_size() == 0 &&
         message.progress().devices_size() == 1;
}

bool SameSource(const v1::Progress& a, const v1::Progress& b) {
  return a.job() == b.job() && a.generation() == b.generation() &&
         a.devices(0).device() == b.devices(0).device();
}

// The run that the message ends or gives up; none: "" and 0.
std::tuple<std::string, int64_t> RunEndedBy(const v1::ConnectRequest& message) {
  const auto run = [](const auto& said) { return std::tuple(said.job(), said.generation()); };
  switch (message.message_case()) {
    case v1::ConnectRequest::kFailed:
      return run(message.failed());
    case v1::ConnectRequest::kFinished:
      return run(message.finished());
    case v1::ConnectRequest::kMerged:
      return run(message.merged());
    case v1::ConnectRequest::kRunEnded:
      return run(message.run_ended());
    default:
      return {"", 0};
  }
}

}  // namespace

void Outbox::Push(v1::ConnectRequest message) {
  absl::MutexLock lock(&mutex_);
  if (messages_.size() >= kBound && Replaceable(message)) {
    const auto replaced = [&](const v1::ConnectRequest& old) {
      return Replaceable(old) && SameSource(old.progress(), message.progress());
    };
    if (std::erase_if(messages_, replaced) > 0) lacking_.insert(message.progress().job());
  }
  if (message.has_steps_so_far()) {
    lacking_.erase(message.steps_so_far().job());
    const auto older = [&](const v1::ConnectRequest& old) {
      return old.has_steps_so_far() && old.steps_so_far().job() == message.steps_so_far().job();
    };
    std::erase_if(messages_, older);
    messages_.push_front(std::move(message));
    return;
  }
  messages_.push_back(std::move(message));
}

void Outbox::PushFront(v1::ConnectRequest message) {
  absl::MutexLock lock(&mutex_);
  messages_.push_front(std::move(message));
}

void Outbox::Tell(const LogLine& line) {
  absl::MutexLock lock(&mutex_);
  logs_.Add(line, SteadyNow());
  told_ = true;
}

void Outbox::TellAgain() {
  absl::MutexLock lock(&mutex_);
  logs_.TellAgain();
}

std::optional<v1::ConnectRequest> Outbox::Next(absl::Time now) {
  if (!messages_.empty()) {
    const auto [job, generation] = RunEndedBy(messages_.front());
    // Once: who logs faster than this is sent must not hold the end back.
    if (!told_before_end_ && logs_.Has(job, generation)) {
      told_before_end_ = true;
      return logs_.Take(job, generation, now);
    }
    told_before_end_ = false;
    v1::ConnectRequest message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  if (logs_.due() <= now) return logs_.TakeDue(now);
  return std::nullopt;
}

std::optional<v1::ConnectRequest> Outbox::Pop(absl::Duration wait) {
  const absl::Time end = SteadyNow() + wait;
  absl::MutexLock lock(&mutex_);
  while (true) {
    const absl::Time now = SteadyNow();
    told_ = false;
    if (auto next = Next(now); next.has_value() || woken_ || now >= end) {
      woken_ = false;
      return next;
    }
    AwaitUntil(mutex_,
               absl::Condition(
                   +[](Outbox* outbox) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                     return outbox->woken_ || outbox->told_ || !outbox->messages_.empty();
                   },
                   this),
               std::min(end, logs_.due()));
  }
}

std::set<std::string> Outbox::LackingSteps() {
  absl::MutexLock lock(&mutex_);
  if (messages_.size() > kBound / 2) return {};
  return std::exchange(lacking_, {});
}

void Outbox::Forget(const std::string& job, int64_t generation) {
  absl::MutexLock lock(&mutex_);
  const auto over = [&](const v1::ConnectRequest& message) {
    return message.has_progress() && message.progress().job() == job &&
           message.progress().generation() <= generation;
  };
  messages_.erase(std::remove_if(messages_.begin(), messages_.end(), over), messages_.end());
}

size_t Outbox::size() const {
  absl::MutexLock lock(&mutex_);
  return messages_.size();
}

void Outbox::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

}  // namespace stagewright
