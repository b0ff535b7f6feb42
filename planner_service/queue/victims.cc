#include "planner_service/queue/victims.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace stagewright {
namespace {

// What the `count` largest of the candidates from `first` on return.
int64_t LargestReturn(const std::vector<HoldingJob>& candidates, size_t first, size_t count) {
  std::vector<int64_t> returns;
  for (size_t i = first; i < candidates.size(); ++i) returns.push_back(candidates[i].returns);
  std::sort(returns.begin(), returns.end(), std::greater<>());
  int64_t sum = 0;
  for (size_t i = 0; i < std::min(count, returns.size()); ++i) sum += returns[i];
  return sum;
}

}  // namespace

std::vector<int64_t> FewestVictims(std::vector<HoldingJob> candidates, int64_t needed) {
  std::sort(candidates.begin(), candidates.end(), [](const HoldingJob& a, const HoldingJob& b) {
    return std::tuple(a.priority, -a.number) < std::tuple(b.priority, -b.number);
  });
  size_t count = 1;
  while (count <= candidates.size() && LargestReturn(candidates, 0, count) < needed) ++count;
  std::vector<int64_t> victims;
  if (count > candidates.size()) return victims;
  for (size_t i = 0; i < candidates.size() && count > 0; ++i) {
    const HoldingJob& one = candidates[i];
    if (one.returns + LargestReturn(candidates, i + 1, count - 1) < needed) continue;
    victims.push_back(one.number);
    needed -= one.returns;
    --count;
  }
  return victims;
}

}  // namespace stagewright
