// What all phases of Pfeife's search share: the problem, models of it, and the effort left.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/pfeife/chain_model.h"
#include "planner_service/planners/pfeife/linear_orders.h"
#include "planner_service/planners/pfeife/split_search.h"

namespace stagewright::pfeife {

// Invariant: a model is made once and lives as long as this; the effort only grows.
class SearchSpace {
 public:
  // Both outlive this.
  SearchSpace(const Problem& problem, SearchContext& context);
  SearchSpace(const SearchSpace&) = delete;
  SearchSpace& operator=(const SearchSpace&) = delete;

  const Problem& problem() const { return problem_; }
  SearchContext& context() const { return context_; }
  const OperatorCosts& costs() const { return costs_; }

  // The model of the operators in this order, with micro-batches of so many samples.
  ChainModel& ModelFor(const std::vector<int32_t>& order, int64_t samples, bool recompute);

  // A search on these devices, one after the other; a narrow one (Tuning) has fewer moves, too.
  SplitSearch Beam(ChainModel& model, const std::vector<int32_t>& devices, int32_t width);

  // Share of the devices' memory that searches begun from now on may use.
  void set_memory(double share) { memory_ = share; }

  // Searches end after so much more effort (Effort::passes).
  void Allow(int64_t passes) { effort_.most_passes = effort_.passes + passes; }
  bool Ended() { return effort_.Ended(context_); }
  const Effort& effort() const { return effort_; }

 private:
  const Problem& problem_;
  SearchContext& context_;
  const OperatorCosts costs_;
  std::map<std::tuple<std::vector<int32_t>, int64_t, bool>, std::unique_ptr<ChainModel>> models_;
  Effort effort_;
  double memory_ = 1;
};

}  // namespace stagewright::pfeife
