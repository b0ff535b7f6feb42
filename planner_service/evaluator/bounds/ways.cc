#include "planner_service/evaluator/bounds/ways.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "planner_service/evaluator/bounds/edge_bytes.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One of the nodes that meet in another, for one sample, in ns.
struct Visitor {
  double remote = 0;  // Until it is done and has sent its tensor, or has been sent one and is done.
  double begin = 0;   // From when on it can run on the common device.
  double length = 0;  // On the common device.
  double after = 0;   // Until it is done, beyond `length`.
  double late = 0;    // On the common device, too, at some time after `length`.
};

// When the last of some visitors to one device is done: in order of begin, the largest `after`
// first. Only one of the two differs between visitors.
double InTurn(std::vector<Visitor> visitors) {
  std::sort(visitors.begin(), visitors.end(), [](const Visitor& a, const Visitor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.after > b.after;
  });
  double time = 0;
  double last = 0;
  double late = 0;
  for (const Visitor& visitor : visitors) {
    time = std::max(time, visitor.begin) + visitor.length;
    last = std::max(last, time + visitor.after);
    late += visitor.late;
  }
  return std::max(last, time + late);
}

// When all are done at the earliest, whichever of them run on the common device. If those that do
// not are done by t, all with a larger `remote` do.
double Meet(std::vector<Visitor> visitors) {
  if (visitors.empty()) return 0;
  if (visitors.size() == 1) return InTurn(visitors);
  std::sort(visitors.begin(), visitors.end(),
            [](const Visitor& a, const Visitor& b) { return a.remote > b.remote; });
  double least = visitors.front().remote;
  for (size_t local = 1; local <= visitors.size(); ++local) {
    const double here = InTurn({visitors.begin(), visitors.begin() + static_cast<int64_t>(local)});
    const double elsewhere = local < visitors.size() ? visitors[local].remote : 0;
    least = std::min(least, std::max(here, elsewhere));
    if (here >= least) break;  // With more of them it only grows.
  }
  return least;
}

}  // namespace

void MeasureWays(BoundProblem& problem) {
  const Graph& graph = problem.graph;
  const FastestExchange& fastest = problem.fastest;
  const bool alone = problem.cluster.size() < 2;
  const auto transfer = [&](double bytes) {
    return alone ? kInfinity : fastest.latency + bytes / fastest.bytes_per_nano;
  };
  problem.head.assign(graph.size(), 0);
  problem.tail.assign(graph.size(), 0);
  std::vector<Visitor> before;
  std::vector<Visitor> back;
  for (int32_t v : graph.dag().order()) {
    before.clear();
    back.clear();
    for (int32_t u : graph.dag().Predecessors(v)) {
      if (!problem.owned(u)) continue;
      const NodeCost& cost = problem.costs[u];
      const double sent = transfer(BytesRead(problem.types, NodeId(u), NodeId(v)));
      before.push_back({problem.head[u] + cost.forward + sent, problem.head[u], cost.forward});
      if (!GradientReturns(graph, NodeId(u), NodeId(v))) continue;
      const double returned = transfer(GradientBytesRead(problem.types, NodeId(u), NodeId(v)));
      // Updates may be of parameters that several of them share.
      back.push_back({returned + problem.WayBack(u), 0, cost.input,
                      std::max(cost.weight + cost.update, problem.tail[u]), cost.weight});
    }
    problem.head[v] = Meet(before);
    problem.tail[v] = Meet(back);
  }
}

}  // namespace stagewright
