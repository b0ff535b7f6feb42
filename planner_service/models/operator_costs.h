// The cost table of a problem, and what sums over its devices cost.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/cost/collectives.h"
#include "common/cost/cost_table.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

class OperatorCosts : public CostTable {
 public:
  // The problem must outlive the costs. O(nodes + reads).
  explicit OperatorCosts(const Problem& problem)
      : CostTable(*problem.graph, *problem.operators, *problem.cluster, *problem.costs,
                  problem.optimizer, problem.optimizer_sharding),
        problem_(&problem) {}

  const Problem& problem() const { return *problem_; }

  // FitAllReduceLines over these devices: searches ask about the same groups again and again. The
  // reference lasts until the next call. Not thread-safe.
  const AllReduceLines& SumsOver(const std::vector<int32_t>& devices) const {
    const auto known = sums_.find(devices);
    if (known != sums_.end()) return known->second;
    if (kept_ > kMostKept) {
      sums_.clear();
      kept_ = 0;
    }
    kept_ += devices.size();
    const std::vector<DeviceId> ids(devices.begin(), devices.end());
    return sums_.emplace(devices, FitAllReduceLines(*problem_->cluster, ids)).first->second;
  }

 private:
  static constexpr size_t kMostKept = 1'000'000;

  const Problem* problem_;
  mutable std::map<std::vector<int32_t>, AllReduceLines> sums_;
  mutable size_t kept_ = 0;  // Devices of all groups in sums_.
};

}  // namespace stagewright
