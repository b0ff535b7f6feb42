#include "common/graph/downsets.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagewright {
namespace {

constexpr int32_t kSetsBetweenPolls = 64;

}  // namespace

std::optional<VertexSets> AllDownsets(const Dag& dag, int64_t limit,
                                      const std::function<bool()>& stop) {
  if (limit < 1) return std::nullopt;
  const std::vector<int32_t>& order = dag.order();
  VertexSets sets(dag.size());
  std::vector<uint64_t> row(sets.words());
  const auto has = [&](int32_t v) { return (row[v >> 6] >> (v & 63)) & 1; };
  sets.Add(row, -1, -1);
  // Without its member that comes last in topological order, a downset is another one; so each is
  // made once, from that one.
  for (int32_t s = 0; s < sets.size(); ++s) {
    if (stop && s % kSetsBetweenPolls == 0 && stop()) return std::nullopt;
    const auto base = sets[s];
    row.assign(base.begin(), base.end());
    int32_t next = dag.size();
    while (next > 0 && !has(order[next - 1])) --next;
    for (int32_t p = next; p < dag.size(); ++p) {
      const int32_t v = order[p];
      const auto before = dag.Predecessors(v);
      if (!std::all_of(before.begin(), before.end(), has)) continue;
      if (sets.size() >= limit) return std::nullopt;
      row[v >> 6] |= uint64_t{1} << (v & 63);
      sets.Add(row, s, v);
      row[v >> 6] &= ~(uint64_t{1} << (v & 63));
    }
  }
  return sets;
}

VertexSets Prefixes(const Dag& dag, const std::vector<int32_t>& order) {
  CHECK(static_cast<int32_t>(order.size()) == dag.size());
  VertexSets sets(dag.size());
  std::vector<uint64_t> row(sets.words());
  sets.Add(row, -1, -1);
  for (int32_t v : order) {
    for (int32_t u : dag.Predecessors(v)) CHECK((row[u >> 6] >> (u & 63)) & 1);
    row[v >> 6] |= uint64_t{1} << (v & 63);
    sets.Add(row, sets.size() - 1, v);
  }
  return sets;
}

}  // namespace stagewright
