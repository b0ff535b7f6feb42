#include "planner_service/search/canonical_operators.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "planner_service/models/operator_costs.h"

namespace stagewright {
namespace {

using Colour = uint64_t;

// Rounds of refinement after the passes over all ancestors and all descendants.
constexpr int32_t kRounds = 3;

// A well mixed function of both (the finaliser of splitmix64): the same on every platform.
Colour Mix(Colour colour, uint64_t value) {
  uint64_t x = colour + 0x9E3779B97F4A7C15u + value * 0xD1B54A32D192ED03u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

template <typename Kind>
Colour Mix(Colour colour, Quantity<Kind> value) {
  return Mix(colour, static_cast<uint64_t>(value.count()));
}

// What an operator costs and holds, and what its values are.
std::vector<Colour> ColoursOfCosts(const OperatorCosts& costs) {
  std::vector<Colour> colours(costs.size(), 0);
  for (const int64_t samples : {int64_t{1}, costs.problem().mini_batch}) {
    const ShareTable& share = costs.Share(samples);
    for (int32_t op = 0; op < costs.size(); ++op) {
      Colour& colour = colours[op];
      for (const auto& times : share.time) {
        colour =
            Mix(Mix(Mix(colour, times[op].forward), times[op].backward), times[op].backward_input);
      }
      colour = Mix(Mix(colour, share.saved[op]), share.workspace[op]);
    }
  }
  for (int32_t op = 0; op < costs.size(); ++op) {
    const CostTable::Held& held = costs.held(op);
    colours[op] = Mix(Mix(colours[op], held.planned.resident), held.planned.gradients);
  }
  std::vector<Colour> values(costs.size(), 0);  // Whatever their order.
  for (const CostTable::Value& value : costs.values()) {
    values[value.producer] += Mix(Mix(Mix(0, value.bytes_per_sample), value.held_per_sample),
                                  uint64_t{value.uses.size()});
  }
  for (int32_t op = 0; op < costs.size(); ++op) colours[op] = Mix(colours[op], values[op]);
  return colours;
}

Colour Sum(std::span<const int32_t> vertices, const std::vector<Colour>& colours) {
  Colour sum = 0;
  for (int32_t v : vertices) sum += Mix(colours[v], uint64_t{1});
  return sum;
}

std::vector<Colour> Refined(const Dag& dag, std::vector<Colour> colours) {
  std::vector<Colour> above = colours;
  std::vector<Colour> below = std::move(colours);
  const std::vector<int32_t>& order = dag.order();
  for (int32_t v : order) above[v] = Mix(above[v], Sum(dag.Predecessors(v), above));
  for (auto v = order.rbegin(); v != order.rend(); ++v) {
    below[*v] = Mix(below[*v], Sum(dag.Successors(*v), below));
  }
  std::vector<Colour> refined(order.size());
  for (int32_t v : order) refined[v] = Mix(above[v], below[v]);
  for (int32_t round = 0; round < kRounds; ++round) {
    const std::vector<Colour> last = refined;
    for (int32_t v : order) {
      refined[v] = Mix(Mix(last[v], Sum(dag.Predecessors(v), last)), Sum(dag.Successors(v), last));
    }
  }
  return refined;
}

// Work of one sample on the longest way from each operator to an end.
std::vector<Nanos> Tails(const OperatorCosts& costs) {
  const Problem& problem = costs.problem();
  const Dag& dag = problem.operators->dag();
  std::vector<Nanos> tails(dag.size(), 0);
  const std::vector<OperatorTime>& times = costs.Share(1).time[0];
  for (auto v = dag.order().rbegin(); v != dag.order().rend(); ++v) {
    Nanos behind = 0;
    for (int32_t w : dag.Successors(*v)) behind = std::max(behind, tails[w]);
    tails[*v] = behind + times[*v].forward + times[*v].backward;
  }
  return tails;
}

}  // namespace

std::vector<uint64_t> OperatorColours(const OperatorCosts& costs) {
  return Refined(costs.problem().operators->dag(), ColoursOfCosts(costs));
}

OperatorGraph CanonicalOperators(const Problem& problem) {
  const OperatorCosts costs(problem);
  const Dag& dag = problem.operators->dag();
  const std::vector<Nanos> tails = Tails(costs);
  const std::vector<Colour> colours = OperatorColours(costs);
  // On a stack, what comes first lies on top.
  const auto later = [&](int32_t a, int32_t b) {
    return std::tie(tails[a], colours[b], b) < std::tie(tails[b], colours[a], a);
  };
  std::vector<int32_t> missing(dag.size());
  std::vector<int32_t> stack;
  for (int32_t v = 0; v < dag.size(); ++v) {
    missing[v] = static_cast<int32_t>(dag.Predecessors(v).size());
    if (missing[v] == 0) stack.push_back(v);
  }
  std::sort(stack.begin(), stack.end(), later);
  std::vector<int32_t> place(dag.size());
  for (int32_t next = 0; !stack.empty(); ++next) {
    const int32_t v = stack.back();
    stack.pop_back();
    place[v] = next;
    const auto first = static_cast<std::ptrdiff_t>(stack.size());
    for (int32_t w : dag.Successors(v)) {
      if (--missing[w] == 0) stack.push_back(w);
    }
    std::sort(stack.begin() + first, stack.end(), later);
  }
  return United(*problem.graph, *problem.operators, place, dag.size());
}

}  // namespace stagewright
