// Graph pipeline parallelism after GraphPipe (ASPLOS 2025), and its sequential counterpart.
//
// Problem: the strategy with the least iteration time for a model, a mini-batch and a cluster.
// Partitions come from partition_search.h (notation, recurrence and complexity stand there), the
// choice among micro-batch sizes and depths from candidates.h, and the last word from the
// evaluator, which simulates the most promising candidates.
//
// Deviations from the paper (1 to 6: partition_search.h):
//  7. Simulation decides. The paper minimises the bottleneck's time per sample. Here that yields
//     candidates; the simulated iteration time decides, then peak memory, then devices, then the
//     partition's text.
//  8. Second order. Besides the order that Linearize() gives, a second order puts the heaviest
//     branch of every parallel vertex first and the lightest last, so that the stage that closes a
//     join takes the lightest branch along.
//  9. Sequential pipelines. A sequential pipeline is a graph pipeline with more edges than the data
//     asks for. Where branches that end together would meet on a slow link, the staggered
//     sequential pipeline can be faster, so the linearised model is searched last, for what beats
//     the best graph pipeline, if that one is busy with messages.
// 10. Less memory. A candidate that the evaluator finds to need more memory than the search thought
//     is passed over; if all are, the search is repeated with a smaller share of the memory.
// 11. Messages in flight. ComputeInFlight covers compute only. Where round trips with messages take
//     longer, stages keep more samples in flight, as far as memory allows (pace.h).
// 12. One stage first. Before the search, the model in one stage, on one device and on all of them,
//     is evaluated, so that a deadline finds an answer also where partitions are too many. It is
//     only given if the search finds nothing faster.
// 13. Views of the cluster. The paper's devices, memories and links are alike. Where they differ,
//     the search runs on several views of the cluster, each of devices taken for as slow and as
//     small as its slowest and smallest, or all for as fast as the fastest
//     (search/placement_views.h).
//
// Reference: Jeon et al., "GraphPipe: Improving Performance and Scalability of DNN Training with
// Graph Pipeline Parallelism", ASPLOS 2025.
#include "planner_service/planners/graphpipe/graphpipe.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cost/cost_table.h"
#include "common/graph/series_parallel.h"
#include "planner_service/planners/graphpipe/build_strategy.h"
#include "planner_service/planners/graphpipe/candidates.h"
#include "planner_service/planners/graphpipe/devices_needed.h"
#include "planner_service/search/memory_shares.h"
#include "planner_service/search/one_stage.h"
#include "planner_service/search/search_views.h"

namespace stagewright {
namespace {

// Candidates are simulated in order of their estimates until an estimate exceeds the best simulated
// time by this factor, or this many are done.
constexpr double kPromising = 1.05;
constexpr int64_t kMostSimulations = 4;
// Programs of more actions are only simulated if nothing else is there.
constexpr int64_t kMostActions = 600'000;

// The linearised model is only searched if a promising graph pipeline keeps a link busy for more
// than this share of the iteration: where messages hide, edges that the data do not ask for cannot
// help.
constexpr double kBusyLink = 0.4;

std::vector<OperatorId> ToOperators(const std::vector<int32_t>& order) {
  return std::vector<OperatorId>(order.begin(), order.end());
}

// The tree with the children of parallel vertices by falling work; equals keep their order.
SpTree HeaviestFirst(SpTree tree, const Problem& problem, const DeviceKind& kind) {
  const auto times = OwnTimes(*problem.operators, *problem.costs, kind, 1);
  std::vector<Nanos> work(tree.vertices.size(), 0);
  for (size_t v = 0; v < tree.vertices.size(); ++v) {
    SpTree::Vertex& vertex = tree.vertices[v];
    if (vertex.kind == SpTree::Kind::kLeaf) {
      work[v] = times[vertex.leaf].forward + times[vertex.leaf].backward;
    }
    for (int32_t child : vertex.children) work[v] += work[child];
    if (vertex.kind == SpTree::Kind::kParallel) {
      std::stable_sort(vertex.children.begin(), vertex.children.end(),
                       [&](int32_t a, int32_t b) { return work[a] > work[b]; });
    }
  }
  return tree;
}

Dag Chain(const std::vector<int32_t>& order) {
  std::vector<Dag::Edge> edges;
  for (size_t p = 1; p < order.size(); ++p) edges.emplace_back(order[p - 1], order[p]);
  return *Dag::Create(static_cast<int32_t>(order.size()), std::move(edges));
}

// A space with what it refers to.
struct OwnedSpace {
  OwnedSpace(const Problem& problem, const std::vector<int32_t>& order, const Dag& edges,
             StrategyKind the_kind)
      : oracle(problem, ToOperators(order)),
        frontier(edges, order),
        ranges(oracle, frontier),
        kind(the_kind) {}
  OwnedSpace(const OwnedSpace&) = delete;
  SearchSpace view() { return {kind, &oracle, &frontier, &ranges}; }

  StageOracle oracle;
  Frontier frontier;
  StageRanges ranges;
  StrategyKind kind;
};

using Spaces = std::vector<std::unique_ptr<OwnedSpace>>;

// What is to be searched, in two rounds; the second one only looks for something better.
class Rounds {
 public:
  Rounds(const Problem& problem, StrategyKind kind)
      : problem_(problem),
        kind_(kind),
        tree_(Decompose(problem.operators->dag())),
        order_(Linearize(tree_)),
        chain_(Chain(order_)) {}

  // Empty if the context expires before one is ready.
  Spaces First(const SearchContext& context) {
    Spaces spaces;
    if (kind_ == StrategyKind::kSequential) {
      Add(order_, chain_, kind_, context, spaces);
      return spaces;
    }
    const Dag& dag = problem_.operators->dag();
    if (context.Expired()) return spaces;
    const Dag reduced = TransitiveReduction(dag, Reachability(dag));
    branches_ = reduced.Edges() != chain_.Edges();
    Add(order_, reduced, kind_, context, spaces);
    const auto by_work = Linearize(HeaviestFirst(tree_, problem_, SlowestKind(problem_, 1)));
    if (by_work != order_) Add(by_work, reduced, kind_, context, spaces);
    return spaces;
  }

  // Empty, too, if it would be the first one again.
  Spaces Second(const SearchContext& context) {
    Spaces spaces;
    if (branches_) Add(order_, chain_, StrategyKind::kSequential, context, spaces);
    return spaces;
  }

 private:
  void Add(const std::vector<int32_t>& order, const Dag& edges, StrategyKind kind,
           const SearchContext& context, Spaces& spaces) {
    if (context.Expired()) return;
    spaces.push_back(std::make_unique<OwnedSpace>(problem_, order, edges, kind));
  }

  const Problem& problem_;
  StrategyKind kind_;
  SpTree tree_;
  std::vector<int32_t> order_;
  Dag chain_;
  bool branches_ = false;
};

// The model in one stage, on one device and on all, as candidates.
std::vector<Candidate> OneStageCandidates(const StageOracle& oracle, const PlanOptions& options,
                                          StrategyKind kind) {
  std::vector<Candidate> candidates;
  for (const auto& [replicas, size, recompute] :
       OneStageChoices(oracle, options, options.recompute)) {
    Candidate& candidate = candidates.emplace_back();
    candidate.kind = kind;
    candidate.oracle = &oracle;
    candidate.partition.stages = {{0, oracle.size(), replicas, {size, 1}, size, recompute}};
    candidate.partition.devices = replicas;
    candidate.layout = MakeLayout(oracle, candidate.partition, kind, {});
    candidate.text = ToString(candidate.partition);
  }
  return candidates;
}

// About the actions of a candidate's program: passes, and both ends of every message.
int64_t Actions(const Candidate& candidate) {
  const int64_t mini_batch = candidate.oracle->problem().mini_batch;
  const auto& stages = candidate.partition.stages;
  const auto passes = [&](int32_t s) {
    return mini_batch / stages[s].config.micro_batch * stages[s].replicas;
  };
  int64_t actions = 0;
  for (size_t s = 0; s < stages.size(); ++s) actions += 2 * passes(static_cast<int32_t>(s));
  for (const Layout::Edge& edge : candidate.layout.edges) {
    actions += 4 * std::max(passes(edge.from), passes(edge.to));
  }
  return actions;
}

// One search on one view of the cluster.
class GraphPipeSearch {
 public:
  GraphPipeSearch(const Problem& problem, const PlanOptions& options, StrategyKind kind,
                  const SearchContext& context, Judge& judge)
      : problem_(problem), options_(options), kind_(kind), context_(context), judge_(judge) {}

  // `explain`: says in found.reason what was lacking if nothing was found.
  absl::Status Run(bool explain, Outcome& found) {
    const StageOracle whole(problem_, ModelOrder(problem_));
    RETURN_IF_ERROR(Consider(OneStageCandidates(whole, options_, kind_), "one"));
    if (context_.Expired()) return absl::OkStatus();
    Rounds rounds(problem_, kind_);
    const Spaces first = rounds.First(context_);
    RETURN_IF_ERROR(Round(first, "first", found));
    if (judge_.best() == nullptr || busy_link_ >= kBusyLink) {
      RETURN_IF_ERROR(Round(rounds.Second(context_), "second", found));
    }
    if (!explain || first.empty() || judge_.seconds_to_beat() > 0 || context_.Expired()) {
      return absl::OkStatus();
    }
    found.reason = DevicesNeeded(first.front()->view(), options_, context_);
    return absl::OkStatus();
  }

 private:
  absl::Status Round(const Spaces& spaces, const char* round, Outcome& found) {
    return TryMemoryShares(kPartitionShares, [&](double share) -> absl::StatusOr<bool> {
      const int64_t accepted = judge_.accepted();
      const int64_t judged = judge_.count();
      RETURN_IF_ERROR(Consider(Find(spaces, share, found.states), round));
      // Less memory only helps where all that was judged needed too much.
      return judge_.count() > judged && judge_.accepted() == accepted && !context_.Expired();
    });
  }

  // The candidates of all spaces, best estimate first; only what may beat the best of all views.
  std::vector<Candidate> Find(const Spaces& spaces, double share, int64_t& states) {
    CandidateOptions wanted{options_, share, kPromising * 1e9 * judge_.seconds_to_beat(),
                            kMostActions};
    std::vector<Candidate> candidates = FindIn(spaces, wanted, states);
    if (candidates.empty() && wanted.to_beat == 0) {
      wanted.most_actions = std::numeric_limits<int64_t>::max();
      candidates = FindIn(spaces, wanted, states);
    }
    std::stable_sort(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.estimate < b.estimate; });
    return candidates;
  }

  std::vector<Candidate> FindIn(const Spaces& spaces, const CandidateOptions& wanted,
                                int64_t& states) {
    std::vector<Candidate> candidates;
    for (size_t s = 0; s < spaces.size(); ++s) {
      auto found = FindCandidates(spaces[s]->view(), wanted, context_, states);
      for (Candidate& candidate : found) {
        absl::StrAppend(&candidate.text, " order ", s);
        candidates.push_back(std::move(candidate));
      }
    }
    return candidates;
  }

  // Has the promising ones of `candidates` (best estimate first) judged: some, and more until one
  // is accepted.
  absl::Status Consider(const std::vector<Candidate>& candidates, const char* round) {
    const auto small = std::min_element(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return Actions(a) < Actions(b); });
    const int64_t most = judge_.count() + kMostSimulations;
    const int64_t accepted = judge_.accepted();
    for (const Candidate& candidate : candidates) {
      if (&candidate != &*small && Actions(candidate) > kMostActions) continue;
      if (judge_.count() >= most && judge_.accepted() > accepted) break;
      const double seconds = candidate.estimate * 1e-9;
      if (judge_.best() != nullptr && seconds > kPromising * judge_.best_seconds()) break;
      if (context_.Expired()) break;
      // Among equal plans the one with the fewest devices is kept.
      Proposal proposal;
      proposal.text = absl::StrCat(absl::Dec(candidate.partition.devices, absl::kZeroPad6), " ",
                                   round, " ", candidate.text);
      proposal.estimate = seconds;
      proposal.strategy =
          BuildStrategy(*candidate.oracle, candidate.partition, candidate.layout, candidate.kind);
      const int64_t before = judge_.accepted();
      RETURN_IF_ERROR(judge_.Consider({std::move(proposal)}, 1, kPromising));
      if (judge_.accepted() == before || candidate.estimate <= 0) continue;
      busy_link_ =
          std::max(busy_link_, candidate.layout.Busiest(*problem_.cluster) *
                                   static_cast<double>(problem_.mini_batch) / candidate.estimate);
    }
    return absl::OkStatus();
  }

  const Problem& problem_;
  const PlanOptions& options_;
  StrategyKind kind_;
  const SearchContext& context_;
  Judge& judge_;
  // The share of an iteration in which the busiest link is busy, by estimate; the most of all.
  double busy_link_ = 0;
};

absl::StatusOr<Outcome> Solve(const std::string& planner, StrategyKind kind, const Problem& problem,
                              const PlanOptions& options, SearchContext& context) {
  if (options.sequential) kind = StrategyKind::kSequential;
  return SearchViews(planner, problem, options, context, /*loops=*/1,
                     [&](const Problem& seen, Judge& judge, Outcome& found) {
                       return GraphPipeSearch(seen, options, kind, context, judge)
                           .Run(/*explain=*/&seen == &problem, found);
                     });
}

class GraphPipePlanner : public Planner {
 public:
  std::string name() const override { return "graphpipe"; }
  std::string description() const override {
    return "graph pipelines: stages on the model's own DAG (GraphPipe, ASPLOS 2025)";
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return stagewright::Solve(name(), StrategyKind::kGraph, problem, options, context);
  }
};

class SequentialPlanner : public Planner {
 public:
  std::string name() const override { return "sequential"; }
  std::string description() const override {
    return "sequential pipelines: the same search over the linearised model";
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return stagewright::Solve(name(), StrategyKind::kSequential, problem, options, context);
  }
};

}  // namespace

std::unique_ptr<Planner> MakeGraphPipePlanner() { return std::make_unique<GraphPipePlanner>(); }
std::unique_ptr<Planner> MakeSequentialPlanner() { return std::make_unique<SequentialPlanner>(); }

}  // namespace stagewright
