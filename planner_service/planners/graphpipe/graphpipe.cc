// Graph pipeline parallelism after GraphPipe (ASPLOS 2025), and its sequential counterpart.
//
// Problem: the strategy with the least iteration time for a model, a mini-batch and a cluster.
// Partitions come from partition_search.h (notation, recurrence, complexity and the deviations 1 to
// 5 stand there), the choice among micro-batch sizes and depths from candidates.h, and the last
// word from the evaluator, which simulates the most promising candidates.
//
// Further deviations from the paper:
//  6. The paper minimises the bottleneck's time per sample. Here that yields candidates; the
//     simulated iteration time decides, then peak memory, then devices, then the partition's text.
//  7. Besides the order that Linearize() gives, a second order puts the heaviest branch of every
//     parallel vertex first and the lightest last, so that the stage that closes a join takes the
//     lightest branch along.
//  8. A sequential pipeline is a graph pipeline with more edges than the data asks for. Where
//     branches that end together would meet on a slow link, the staggered sequential pipeline can
//     be faster, so the linearised model is searched last, for what beats the best graph pipeline,
//     if that one is busy with messages.
//  9. A candidate that the evaluator finds to need more memory than the search thought is passed
//     over; if all are, the search is repeated with a smaller share of the memory.
// 13. Before the search, the model in one stage, on one device and on all of them, is evaluated, so
//     that a deadline finds an answer also where partitions are too many. It is only given if the
//     search finds nothing faster.
//
// Reference: Jeon et al., "GraphPipe: Improving Performance and Scalability of DNN Training with
// Graph Pipeline Parallelism", ASPLOS 2025.
#include "planner_service/planners/graphpipe/graphpipe.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/graph/series_parallel.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/graphpipe/build_strategy.h"
#include "planner_service/planners/graphpipe/candidates.h"
#include "planner_service/planners/graphpipe/infeasible.h"

namespace stagewright {
namespace {

// Candidates are simulated in order of their estimates until an estimate exceeds the best simulated
// time by this factor, or this many are done.
constexpr double kPromising = 1.05;
constexpr int64_t kMostSimulations = 4;
// Programs of more actions are only simulated if nothing else is there.
constexpr int64_t kMostActions = 600'000;

// The linearised model is only searched if the best graph pipeline keeps a link busy for more than
// this share of the iteration: where messages hide, edges that the data do not ask for cannot help.
constexpr double kBusyLink = 0.4;

// Shares of the memory budget that the search may fill, tried until a candidate survives.
constexpr double kMemoryShares[] = {1, 0.97, 0.93, 0.87, 0.8, 0.7, 0.55};

std::vector<OperatorId> ToOperators(const std::vector<int32_t>& order) {
  return std::vector<OperatorId>(order.begin(), order.end());
}

// The tree with the children of parallel vertices by falling work; equals keep their order.
SpTree HeaviestFirst(SpTree tree, const Problem& problem, const DeviceKind& kind) {
  std::vector<Nanos> work(tree.vertices.size(), 0);
  for (size_t v = 0; v < tree.vertices.size(); ++v) {
    SpTree::Vertex& vertex = tree.vertices[v];
    if (vertex.kind == SpTree::Kind::kLeaf) {
      for (NodeId node : problem.operators->op(OperatorId(vertex.leaf)).nodes) {
        const OperatorTime time = problem.costs->Time(node, kind, 1);
        work[v] += time.forward + time.backward;
      }
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

// The spaces to search, in rounds; a later round only looks for something better.
std::vector<std::vector<std::unique_ptr<OwnedSpace>>> MakeSpaces(const Problem& problem,
                                                                 StrategyKind kind) {
  const Dag& dag = problem.operators->dag();
  const SpTree tree = Decompose(dag);
  const std::vector<int32_t> order = Linearize(tree);
  const Dag chain = Chain(order);
  std::vector<std::vector<std::unique_ptr<OwnedSpace>>> rounds(1);
  if (kind == StrategyKind::kSequential) {
    rounds[0].push_back(std::make_unique<OwnedSpace>(problem, order, chain, kind));
    return rounds;
  }
  const Dag reduced = TransitiveReduction(dag, Reachability(dag));
  rounds[0].push_back(std::make_unique<OwnedSpace>(problem, order, reduced, kind));
  const auto by_work = Linearize(HeaviestFirst(tree, problem, SlowestKind(problem, 1)));
  if (by_work != order)
    rounds[0].push_back(std::make_unique<OwnedSpace>(problem, by_work, reduced, kind));
  if (reduced.Edges() != chain.Edges()) {
    rounds.emplace_back();
    rounds[1].push_back(
        std::make_unique<OwnedSpace>(problem, order, chain, StrategyKind::kSequential));
  }
  return rounds;
}

// The model in one stage on `replicas` devices, with the largest micro-batch that fits its memory.
std::optional<Candidate> OneStage(const StageOracle& oracle, const PlanOptions& options,
                                  StrategyKind kind, int32_t replicas) {
  const int64_t mini_batch = oracle.problem().mini_batch;
  std::vector<int64_t> sizes = MicroBatchSizes(mini_batch, options.micro_batch);
  std::reverse(sizes.begin(), sizes.end());
  for (bool recompute : {false, true}) {
    if (options.recompute == (recompute ? RecomputePolicy::kNever : RecomputePolicy::kAlways)) {
      continue;
    }
    for (int64_t size : sizes) {
      const StageOracle::Flow flow{(size + replicas - 1) / replicas, 1, mini_batch / size,
                                   recompute};
      if (size < replicas || oracle.Memory(0, oracle.size(), flow) > oracle.budget()) continue;
      Candidate candidate;
      candidate.kind = kind;
      candidate.oracle = &oracle;
      candidate.partition.stages = {{0, oracle.size(), replicas, {size, 1}, size, recompute}};
      candidate.partition.devices = replicas;
      candidate.layout = MakeLayout(oracle, candidate.partition, kind, {});
      candidate.text = ToString(candidate.partition);
      return candidate;
    }
  }
  return std::nullopt;
}

// On one device and, where replicas are allowed, on all. Empty if more stages are asked for or
// nothing fits.
std::vector<Candidate> OneStageCandidates(const StageOracle& oracle, const PlanOptions& options,
                                          StrategyKind kind) {
  std::vector<Candidate> candidates;
  if (options.num_stages > 1) return candidates;
  const Problem& problem = oracle.problem();
  const auto all =
      static_cast<int32_t>(std::min<int64_t>(problem.cluster->size(), problem.mini_batch));
  for (int32_t replicas : {1, all}) {
    if (replicas > 1 && !options.allow_replicas) continue;
    if (!candidates.empty() && candidates.back().partition.devices == replicas) continue;
    std::optional<Candidate> candidate = OneStage(oracle, options, kind, replicas);
    if (candidate.has_value()) candidates.push_back(*std::move(candidate));
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

// The best strategy so far and how it was found.
class Judge {
 public:
  Judge(const Problem& problem, SearchContext& context) : problem_(problem), context_(context) {}

  // Simulates the promising ones of `candidates` (best estimate first). An error is a bug: a
  // candidate may only fail for want of memory, or because a tensor without a batch dimension
  // would have to be split.
  absl::Status Consider(const std::vector<Candidate>& candidates) {
    const int64_t most = count_ + kMostSimulations;
    const Candidate* small = nullptr;  // The program of fewest actions.
    int64_t fewest = 0;
    for (const Candidate& candidate : candidates) {
      const int64_t actions = Actions(candidate);
      if (small == nullptr || actions < fewest) {
        small = &candidate;
        fewest = actions;
      }
    }
    for (const Candidate& candidate : candidates) {
      if (&candidate != small && Actions(candidate) > kMostActions) continue;
      if (count_ >= most && best_ != nullptr) break;
      if (best_ != nullptr && candidate.estimate > kPromising * static_cast<double>(best_time_)) {
        break;
      }
      if (context_.Expired()) break;
      RETURN_IF_ERROR(Simulate(candidate));
    }
    return absl::OkStatus();
  }

  // Simulates what best() need not beat.
  absl::Status ConsiderFirst(const std::vector<Candidate>& candidates) {
    for (const Candidate& candidate : candidates) {
      if (context_.Expired()) break;
      RETURN_IF_ERROR(Simulate(candidate));
    }
    first_ = std::move(best_);
    first_time_ = best_time_;
    best_time_ = 0;
    return absl::OkStatus();
  }

  // The fastest of all, whichever way it came.
  const Strategy* fastest() const {
    if (first_ == nullptr || (best_ != nullptr && best_time_ <= first_time_)) return best_.get();
    return first_.get();
  }
  const Strategy* best() const { return best_.get(); }
  Nanos best_time() const { return best_time_; }
  // The share of the best iteration in which its busiest link is busy.
  double busy_link() const { return busy_link_; }
  int64_t count() const { return count_; }
  const std::string& rejection() const { return rejection_; }

 private:
  absl::Status Simulate(const Candidate& candidate) {
    ++count_;
    EvaluateOptions options;
    options.optimizer = problem_.optimizer;
    Strategy strategy =
        BuildStrategy(*candidate.oracle, candidate.partition, candidate.layout, candidate.kind);
    absl::StatusOr<Evaluation> evaluation =
        Evaluate(*problem_.graph, *problem_.cluster, *problem_.costs, strategy, options);
    if (absl::IsResourceExhausted(evaluation.status()) ||
        absl::IsFailedPrecondition(evaluation.status())) {
      rejection_ = std::string(evaluation.status().message());
      return absl::OkStatus();
    }
    if (!evaluation.ok()) {
      return Annotate(evaluation.status(), absl::StrCat("candidate ", candidate.text));
    }
    Bytes peak = 0;
    for (const DeviceUse& device : evaluation->devices) peak = std::max(peak, device.peak_memory);
    const auto key = std::make_tuple(evaluation->iteration_time, peak, candidate.partition.devices,
                                     candidate.text);
    if (best_ != nullptr && key >= std::tie(best_time_, best_peak_, best_devices_, best_text_)) {
      return absl::OkStatus();
    }
    std::tie(best_time_, best_peak_, best_devices_, best_text_) = key;
    best_ = std::make_unique<Strategy>(std::move(strategy));
    busy_link_ = candidate.layout.Busiest(*problem_.cluster) *
                 static_cast<double>(problem_.mini_batch) / static_cast<double>(best_time_);
    const bool improves = first_ == nullptr || best_time_ < first_time_;
    if (context_.on_improvement && improves) context_.on_improvement(*best_);
    return absl::OkStatus();
  }

  const Problem& problem_;
  SearchContext& context_;
  std::unique_ptr<Strategy> first_;
  Nanos first_time_ = 0;
  std::unique_ptr<Strategy> best_;
  Nanos best_time_ = 0;
  Bytes best_peak_ = 0;
  int32_t best_devices_ = 0;
  std::string best_text_;
  double busy_link_ = 0;
  int64_t count_ = 0;
  std::string rejection_;
};

absl::StatusOr<Outcome> Search(const Problem& problem, const PlanOptions& options,
                               StrategyKind kind, SearchContext& context) {
  Outcome outcome;
  outcome.reason = ImpossibleOptions(problem, options);
  if (!outcome.reason.empty()) return outcome;
  Judge judge(problem, context);
  const StageOracle whole(problem, ToOperators(problem.operators->dag().order()));
  RETURN_IF_ERROR(judge.ConsiderFirst(OneStageCandidates(whole, options, kind)));
  const auto rounds = MakeSpaces(problem, kind);
  for (const auto& spaces : rounds) {
    const bool again = &spaces != &rounds.front();
    if (again && judge.best() != nullptr && judge.busy_link() < kBusyLink) break;
    for (double share : kMemoryShares) {
      CandidateOptions wanted{options, share, kPromising * static_cast<double>(judge.best_time())};
      const int64_t judged = judge.count();
      std::vector<Candidate> candidates;
      for (const auto& space : spaces) {
        auto found = FindCandidates(space->view(), wanted, context, outcome.states);
        std::move(found.begin(), found.end(), std::back_inserter(candidates));
      }
      std::stable_sort(
          candidates.begin(), candidates.end(),
          [](const Candidate& a, const Candidate& b) { return a.estimate < b.estimate; });
      RETURN_IF_ERROR(judge.Consider(candidates));
      if (judge.count() == judged || judge.best() != nullptr || context.Expired()) break;
    }
  }
  outcome.candidates = judge.count();
  if (judge.fastest() != nullptr) outcome.strategy = *judge.fastest();
  if (context.Expired()) {
    outcome.termination = Termination::kLimit;
    outcome.reason = "the search was stopped by its deadline or cancelled";
  } else if (outcome.strategy) {
    outcome.termination = Termination::kFeasible;
  } else {
    outcome.reason = WhyInfeasible(rounds[0][0]->view(), options, context);
    if (!judge.rejection().empty()) {
      outcome.reason = absl::StrCat(outcome.reason, "; closest: ", judge.rejection());
    }
  }
  return outcome;
}

class GraphPipePlanner : public Planner {
 public:
  std::string name() const override { return "graphpipe"; }
  std::string description() const override {
    return "graph pipelines: stages on the model's own DAG (GraphPipe, ASPLOS 2025)";
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return Search(problem, options, StrategyKind::kGraph, context);
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
    return Search(problem, options, StrategyKind::kSequential, context);
  }
};

}  // namespace

std::unique_ptr<Planner> MakeGraphPipePlanner() { return std::make_unique<GraphPipePlanner>(); }
std::unique_ptr<Planner> MakeSequentialPlanner() { return std::make_unique<SequentialPlanner>(); }

}  // namespace stagewright
