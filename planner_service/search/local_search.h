// Local search over drafts, timed by the list schedule.
//
// From a draft, random neighbours (moves.h) are scheduled one after the other; a neighbour becomes
// the current draft if it is no slower than a threshold that falls from some per cent above to none
// (threshold accepting, Dueck and Scheuer 1990). The best one is kept. Each evaluation costs
// microseconds to a millisecond, so that thousands fit into a second; the simulator only judges
// what comes out.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "planner_service/models/draft.h"
#include "planner_service/models/list_schedule/list_schedule.h"
#include "planner_service/models/operator_costs.h"
#include "planner_service/search/moves.h"

namespace stagewright {

struct RatedDraft {
  Draft draft;
  ListRule rule;       // The one whose schedule is the shortest.
  Nanos estimate = 0;  // Its step time.
};

// The rules that Rate tries, and the few for a quick rating; with split backward passes only if the
// options permit.
std::vector<ListRule> ListRules(bool split_backward);
std::vector<ListRule> FewListRules(bool split_backward);

// The passes of a draft, a backward pass for two.
int64_t PassesOf(const Problem& problem, const Draft& draft);

class LocalSearch {
 public:
  // Arguments outlive the local_search.
  LocalSearch(const OperatorCosts& costs, const PlanOptions& options, const SearchContext& context);

  // Promise() of a draft, without a schedule; nullopt if it is not allowed or has a cycle.
  std::optional<double> Promise(Draft& draft);

  // With the best of all rules, or of a few; nullopt if the draft is not allowed, has a cycle or
  // does not fit into memory. A ListScheduler::Run per rule.
  std::optional<RatedDraft> Rate(Draft draft, bool quick);

  // The best draft found from `start` with about `budget` scheduled passes and messages, where the
  // threshold starts at `threshold` over the current estimate. Stops when the context expires. The
  // same for equal random unless the context cuts in.
  RatedDraft Improve(RatedDraft start, int64_t budget, double threshold, RandomSource& random);

  // The strategy of a draft with the orders of its schedule, which is made again.
  Strategy ToStrategy(const RatedDraft& rated);

  // Neighbours of more passes are not looked at.
  void set_most_passes(int64_t passes) { most_passes_ = passes; }
  // As in MakeTaskGraph.
  void set_memory_share(double share) { memory_share_ = share; }
  // Whether neighbours are those of Moves::ChangeAlike, which differ where HasAlike says so.
  void set_alike(bool alike) { alike_ = alike; }
  // Whether neighbours are those of Moves::ChangeWidely.
  void set_wide(bool wide) { wide_ = wide; }
  bool HasAlike() const { return moves_.HasAlike(); }
  int64_t states() const { return states_; }  // Schedules made.
  int64_t passes() const { return passes_; }  // Work so far, as `budget`.

 private:
  bool Change(const ListResult& last, RandomSource& random, Draft& draft) const;
  TaskGraph GraphOf(const Draft& draft);
  RatedDraft AllRules(const RatedDraft& rated);  // With another rule if one is faster.
  ListResult Schedule(const TaskGraph& graph, const ListRule& rule, bool orders = false,
                      Nanos limit = std::numeric_limits<Nanos>::max());

  const OperatorCosts& costs_;
  const SearchContext& context_;
  Moves moves_;
  std::vector<ListRule> rules_, few_;
  ListScheduler scheduler_;
  // What the graph made last takes at least, with whole and with split backward passes, if known.
  LeastTimes least_[2];
  bool known_[2] = {};
  double memory_share_ = 1;
  bool alike_ = false;
  bool wide_ = false;
  int64_t most_passes_ = std::numeric_limits<int64_t>::max();
  int64_t states_ = 0;
  int64_t passes_ = 0;
};

}  // namespace stagewright
