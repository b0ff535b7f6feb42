// What the agent is paid for: seconds of a mini-batch.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "planner_service/models/draft.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// By the evaluator, with one step of the problem.
MeasureStrategy SimulatedSeconds(const Problem& problem);

struct Measured {
  Strategy strategy;
  double seconds = 0;
};

// Measures drafts, each once, with the micro-batch size that serves it best: the agent decides
// partitions and devices only.
class Rewards {
 public:
  Rewards(const Problem& problem, const PlanOptions& options, const SearchContext& context,
          MeasureStrategy measure);

  // Nullptr where no micro-batch size runs. `draft.micro_batch` does not matter. Once the context
  // has expired, only the very first draft is measured, with one size.
  const Measured* Of(Draft draft);

  int64_t measured() const { return measured_; }
  // The last strategy that could not run.
  const absl::Status& last_error() const { return last_error_; }

 private:
  std::vector<int64_t> MicroBatches(const Draft& draft) const;

  const Problem& problem_;
  const PlanOptions& options_;
  const SearchContext& context_;
  MeasureStrategy measure_;
  std::map<std::string, std::optional<Measured>> known_;
  absl::Status last_error_;
  int64_t measured_ = 0;
};

}  // namespace stagewright
