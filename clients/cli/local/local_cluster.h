// A planner and workers as processes of this machine, for as long as this program runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "clients/cli/local/child_process.h"
#include "common/base/status.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

struct LocalClusterOptions {
  int workers = 0;
  int threads_per_worker = 1;
  std::string listen;     // HOST:PORT of the planner; port 0 picks a free one.
  std::string directory;  // For the planner's state and all logs; there already.
};

class LocalCluster {
 public:
  // Waits as long as told and says whether to go on waiting.
  using Pause = absl::FunctionRef<bool(absl::Duration)>;

  // Starts the programs that lie beside this one and returns when all workers have registered.
  // CANCELLED when `pause` says no; else the error names the process, why it ended, and the end of
  // its log. In all cases nothing is left running.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options,
                                                             Pause pause);
  // Ends workers, then the planner.
  ~LocalCluster();

  // The planner's, with the port that it got.
  const std::string& address() const { return address_; }
  // OK while all of them run; FAILED_PRECONDITION as of Start.
  absl::Status Check();

 private:
  explicit LocalCluster(const LocalClusterOptions& options) : options_(options) {}
  absl::Status StartPlanner(const std::string& program, Pause pause);
  absl::Status StartWorker(const std::string& program, int index);
  absl::Status AwaitWorkers(Pause pause);
  // The ends of the logs of workers that have not registered.
  std::string LogsOfMissing(const v1::ListWorkersResponse& registered) const;

  const LocalClusterOptions options_;
  std::string address_;
  std::vector<ChildProcess> processes_;  // The planner first.
};

}  // namespace stagewright::cli
