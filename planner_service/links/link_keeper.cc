#include "planner_service/links/link_keeper.h"

#include <utility>

#include "common/clock/steady_wait.h"

namespace stagewright {

LinkKeeper::LinkKeeper(Store* store, absl::Duration patience)
    : store_(store), patience_(patience), thread_([this] { Run(); }) {}

LinkKeeper::~LinkKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    AwaitFor(mutex_,
             absl::Condition(
                 +[](std::optional<LinkTable>* newest) { return !newest->has_value(); }, &newest_),
             patience_);
    newest_.reset();
  }
  thread_.join();
}

void LinkKeeper::Keep(LinkTable table) {
  absl::MutexLock lock(&mutex_);
  newest_ = std::move(table);
}

void LinkKeeper::Run() {
  while (true) {
    std::optional<LinkTable> table;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](LinkKeeper* keeper) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return keeper->closing_ || keeper->newest_.has_value();
          },
          this));
      if (!newest_.has_value()) return;
      table = std::exchange(newest_, std::nullopt);
    }
    store_->Write({{kKey, ToProto(*table).SerializeAsString()}}).IgnoreError();
  }
}

}  // namespace stagewright
