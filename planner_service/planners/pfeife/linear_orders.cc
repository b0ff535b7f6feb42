#include "planner_service/planners/pfeife/linear_orders.h"

#include <algorithm>
#include <set>
#include <utility>

namespace stagewright::pfeife {
namespace {

// A slice's share of the work may be missed by this much before the branch changes.
constexpr double kEnough = 0.95;

std::vector<int32_t> Interleaved(const Dag& dag, const std::vector<double>& work, double share) {
  std::vector<int32_t> missing(dag.size());
  std::vector<double> depth(dag.size(), 0);  // Work on the heaviest path that ends before it.
  std::set<std::pair<double, int32_t>> ready;
  for (int32_t v = 0; v < dag.size(); ++v) {
    missing[v] = static_cast<int32_t>(dag.Predecessors(v).size());
    if (missing[v] == 0) ready.emplace(0, v);
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    int32_t v = ready.begin()->second;
    for (double taken = 0; v >= 0;) {
      ready.erase({depth[v], v});
      order.push_back(v);
      taken += work[v];
      int32_t next = -1;
      for (int32_t w : dag.Successors(v)) {
        depth[w] = std::max(depth[w], depth[v] + work[v]);
        if (--missing[w] > 0) continue;
        ready.emplace(depth[w], w);
        if (next < 0) next = w;
      }
      v = taken >= kEnough * share ? -1 : next;
    }
  }
  return order;
}

}  // namespace

std::vector<std::vector<int32_t>> LinearOrders(const OperatorCosts& costs, int64_t samples,
                                               int32_t slices) {
  const Dag& dag = costs.problem().operators->dag();
  std::vector<double> work;
  double total = 0;
  for (const OperatorTime& time : costs.Share(samples).time[0]) {
    work.push_back(static_cast<double>(time.forward + time.backward));
    total += work.back();
  }
  std::vector<std::vector<int32_t>> orders = {dag.order()};
  std::vector<int32_t> interleaved = Interleaved(dag, work, total / slices);
  if (interleaved != orders.front()) orders.push_back(std::move(interleaved));
  return orders;
}

}  // namespace stagewright::pfeife
