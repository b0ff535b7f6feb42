#include "planner_service/search/merged_operators.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "common/cost/cost_table.h"
#include "common/graph/dag.h"
#include "planner_service/models/stage_oracle.h"

namespace stagewright {
namespace {

// Unions may exceed the mean weight by this factor, then by its square, until there are few enough.
constexpr double kHeavier = 1.1;

// The longest chains, each in its order; every operator is in one.
std::vector<std::vector<int32_t>> Chains(const Dag& dag) {
  const Dag reduced = TransitiveReduction(dag, Reachability(dag));
  const auto follows = [&](int32_t v) {
    const auto before = reduced.Predecessors(v);
    return before.size() == 1 && reduced.Successors(before[0]).size() == 1;
  };
  std::vector<std::vector<int32_t>> chains;
  for (int32_t first : reduced.order()) {
    if (follows(first)) continue;
    std::vector<int32_t>& chain = chains.emplace_back(1, first);
    while (reduced.Successors(chain.back()).size() == 1 &&
           follows(reduced.Successors(chain.back())[0])) {
      chain.push_back(reduced.Successors(chain.back())[0]);
    }
  }
  return chains;
}

// Each chain in runs of at most `limit`, unless one operator is heavier; the run of each operator.
int32_t NumberRuns(const std::vector<std::vector<int32_t>>& chains,
                   const std::vector<double>& weight, double limit, std::vector<int32_t>& run) {
  int32_t count = 0;
  for (const std::vector<int32_t>& chain : chains) {
    double filled = 0;
    ++count;
    for (int32_t v : chain) {
      if (filled > 0 && filled + weight[v] > limit) {
        ++count;
        filled = 0;
      }
      filled += weight[v];
      run[v] = count - 1;
    }
  }
  return count;
}

}  // namespace

OperatorGraph MergeChains(const Graph& graph, const OperatorGraph& operators,
                          const std::vector<double>& weight, int32_t most) {
  CHECK(weight.size() == static_cast<size_t>(operators.size()) && most > 0);
  if (operators.size() <= most) return operators;
  const auto chains = Chains(operators.dag());
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  const auto least = std::max(static_cast<int32_t>(chains.size()), most);
  std::vector<int32_t> run(operators.size());
  double limit = all / most;
  int32_t count = NumberRuns(chains, weight, limit, run);
  while (count > least && limit < all) {
    limit *= kHeavier;
    count = NumberRuns(chains, weight, limit, run);
  }
  return United(graph, operators, run, count);
}

std::optional<OperatorGraph> FewerOperators(const Problem& problem) {
  const int64_t operators = problem.operators->size();
  const int64_t devices = problem.cluster->size();
  if (operators * devices <= kMostSearched) return std::nullopt;
  const int64_t most = kSearchedAtEase / devices;
  if (operators <= most || most == 0) return std::nullopt;
  std::vector<double> weight;
  for (const OperatorTime& time :
       OwnTimes(*problem.operators, *problem.costs, SlowestKind(problem, 1), 1)) {
    weight.push_back(ToSeconds(time.forward + time.backward));
  }
  return MergeChains(*problem.graph, *problem.operators, weight, static_cast<int32_t>(most));
}

}  // namespace stagewright
