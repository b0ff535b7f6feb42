// Jobs that a worker is told to prepare by the name of their graph, until it has that.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/graphs/graph_keeper.h"

namespace stagewright {

// Not thread-safe.
class NamedGraphs {
 public:
  // `say` tells the planner: which graphs are needed, and which jobs failed for want of one.
  explicit NamedGraphs(std::function<void(v1::ConnectRequest)> say) : say_(std::move(say)) {}

  // The message with its graph, or nothing: the planner is asked for it, and the message waits
  // instead of an older one of the job.
  std::optional<v1::Prepare> Complete(v1::Prepare message);
  // Those that waited for the graph, with it. One that is not what its name says fails them.
  std::vector<v1::Prepare> Take(const v1::NeededGraph& answer);
  // The job's, in this generation or an older one, waits no more.
  void Drop(const std::string& job, int64_t generation);
  // Nor does any: what was asked before the stream broke is not answered.
  void DropAll() { waiting_.clear(); }
  // The generation of the job that waits; -1: none does.
  int64_t Waiting(const std::string& job) const;

 private:
  const std::function<void(v1::ConnectRequest)> say_;
  GraphKeeper keeper_;
  std::map<std::string, v1::Prepare> waiting_;  // By job.
};

}  // namespace stagewright
