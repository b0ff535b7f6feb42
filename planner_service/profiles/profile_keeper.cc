#include "planner_service/profiles/profile_keeper.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock/steady_wait.h"
#include "common/log/log.h"

namespace stagewright {
namespace {

void TellLost(const std::string& job, absl::string_view why) {
  Log(LogLevel::kWarning, "what a job measured is not kept", {{"job", job}, {"why", why}});
}

}  // namespace

ProfileKeeper::ProfileKeeper(ProfileStore* profiles, absl::Duration patience)
    : profiles_(profiles), patience_(patience), thread_([this] { Run(); }) {}

ProfileKeeper::~ProfileKeeper() {
  std::deque<Piece> lost;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    AwaitFor(mutex_,
             absl::Condition(
                 +[](std::deque<Piece>* queue) { return queue->empty(); }, &queue_),
             patience_);
    lost.swap(queue_);
  }
  if (!lost.empty()) {
    std::set<std::string> jobs;
    for (const Piece& piece : lost) jobs.insert(piece.job);
    Log(LogLevel::kWarning,
        "what jobs measured is not kept: the store did not take it before the planner ended",
        {{"lost", lost.size()},
         {"jobs", absl::StrJoin(jobs, ",")},
         {"waited_seconds", absl::ToDoubleSeconds(patience_)}});
  }
  thread_.join();
}

void ProfileKeeper::Keep(const std::string& job, OperatorProfile profile) {
  {
    absl::MutexLock lock(&mutex_);
    if (queue_.size() < kMostQueued) {
      queue_.push_back({job, std::move(profile)});
      return;
    }
  }
  TellLost(job, absl::StrCat("the store is slow: ", kMostQueued, " wait for it"));
}

absl::StatusOr<std::shared_ptr<const OperatorProfile>> ProfileKeeper::Known() const {
  if (!profiles_->current()) {
    absl::MutexLock lock(&mutex_);
    read_ = true;
  }
  return profiles_->Known();
}

void ProfileKeeper::Run() {
  while (true) {
    Piece piece;
    bool read = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](ProfileKeeper* keeper) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return keeper->closing_ || keeper->read_ || !keeper->queue_.empty();
          },
          this));
      if (closing_ && queue_.empty()) return;
      read = std::exchange(read_, false) && !closing_;
      if (!read) {
        piece = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (read) {
      profiles_->Read().IgnoreError();
    } else if (const absl::Status lost = profiles_->Write(piece.profile); !lost.ok()) {
      TellLost(piece.job, lost.message());
    }
  }
}

}  // namespace stagewright
