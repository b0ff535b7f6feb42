#include "planner_service/jobs/job_watches.h"

#include <utility>

#include "planner_service/jobs/job_proto.h"

namespace stagewright {
namespace {

// What clients see: everything but the graph, which they sent.
std::shared_ptr<const v1::Job> Snapshot(const Job& job) {
  return std::make_shared<const v1::Job>(ToProto(job, GraphDetail::kNone));
}

}  // namespace

int64_t JobWatches::Add(const Job& job, Watcher watcher) {
  watcher(Snapshot(job));
  watches_[next_] = {job.number, std::move(watcher)};
  return next_++;
}

void JobWatches::Tell(const Job& job) const {
  std::shared_ptr<const v1::Job> snapshot;
  for (const auto& [id, watch] : watches_) {
    if (watch.job != job.number) continue;
    if (snapshot == nullptr) snapshot = Snapshot(job);
    watch.watcher(snapshot);
  }
}

}  // namespace stagewright
