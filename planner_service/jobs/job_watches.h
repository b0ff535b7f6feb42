// Who is told of changes of which job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "planner_service/jobs/job.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// Not thread-safe.
class JobWatches {
 public:
  // Must not block.
  using Watcher = std::function<void(std::shared_ptr<const v1::Job>)>;

  // Tells `watcher` of the job as it is, and of each change until Remove.
  int64_t Add(const Job& job, Watcher watcher);
  void Remove(int64_t id) { watches_.erase(id); }
  void Tell(const Job& job) const;

 private:
  struct Watch {
    int64_t job = 0;
    Watcher watcher;
  };

  std::map<int64_t, Watch> watches_;
  int64_t next_ = 1;
};

}  // namespace stagewright
