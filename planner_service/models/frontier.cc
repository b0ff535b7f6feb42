#include "planner_service/models/frontier.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"

namespace stagewright {

Frontier::Frontier(const Dag& dag, const std::vector<int32_t>& order) {
  const int32_t n = dag.size();
  CHECK(static_cast<int32_t>(order.size()) == n);
  std::vector<int32_t> position(n);
  for (int32_t p = 0; p < n; ++p) position[order[p]] = p;

  classes_.resize(n + 1);
  // class_of[q]: class at p + 1 of the vertex at position q; -1 while nothing beyond is visible.
  std::vector<int32_t> class_of(n, -1);
  std::vector<bool> sees(n);  // The vertex at position q is a predecessor of the one at p.
  for (int32_t p = n - 1; p >= 0; --p) {
    std::fill(sees.begin(), sees.end(), false);
    for (int32_t u : dag.Predecessors(order[p])) {
      CHECK(position[u] < p);
      sees[position[u]] = true;
    }
    // Members with equal successors beyond p stay together unless only some of them see p itself.
    std::map<std::pair<int32_t, bool>, int32_t> split;
    for (int32_t q = 0; q < p; ++q) {
      const int32_t parent = class_of[q];
      if (parent < 0 && !sees[q]) continue;
      const auto [it, added] =
          split.try_emplace({parent, sees[q]}, static_cast<int32_t>(classes_[p].size()));
      if (added) {
        const int32_t nearest = sees[q] ? p : classes_[p + 1][parent].first_successor;
        classes_[p].push_back({nearest, q, parent});
      }
      classes_[p][it->second].last_member = q;
      class_of[q] = it->second;
    }
  }
}

int32_t Frontier::width() const {
  size_t width = 0;
  for (const auto& row : classes_) width = std::max(width, row.size());
  return static_cast<int32_t>(width);
}

}  // namespace stagewright
