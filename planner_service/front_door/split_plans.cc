#include "planner_service/front_door/split_plans.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/cost/node_weights.h"
#include "common/rewrite/operator_cut.h"
#include "common/rewrite/split_operators.h"
#include "planner_service/front_door/request_costs.h"

namespace stagewright {
namespace {

constexpr int32_t kParts[] = {2, 4, 8};
constexpr size_t kMostOperators = 4;   // Cut in a plan, where nobody names them.
constexpr size_t kMostCandidates = 3;  // Operators whose bound is looked at in a round.
// A plan with one more operator cut is faster by this share, or it is not worth it; so is the bound
// if the operator binds.
constexpr double kLeastGain = 0.01;
// The work of all searches of a request, and the part of it that the graph as it is gets, times
// what of its bound is left where cutting promises something: one that binds by far is cut anyway.
// With less than a twentieth left no further operator is tried.
constexpr Nanos kMostWork = 5'400 * kMillisecond;
constexpr double kUncut = 0.5;
constexpr int64_t kTooLittle = 20;
// Bounds of cuts in other numbers of parts that are no further apart count as equal.
constexpr double kAlike = 1.1;

bool IsFasterBy(Nanos time, Nanos than, double share) {
  return static_cast<double>(time) < (1 - share) * static_cast<double>(than);
}

Nanos TimeOf(const PlanResponse& response) {
  return response.best.has_value() ? response.best->evaluation.iteration_time
                                   : std::numeric_limits<Nanos>::max();
}

// Nodes that can be cut, with more than half a device's share of the work, heaviest first.
std::vector<NodeId> HeavyNodes(const PlanRequest& request,
                               const std::vector<OperatorSplit>& splits) {
  const Graph& graph = *request.graph;
  const std::unique_ptr<CostModel> costs = MakeCosts(request, graph);
  const int64_t samples = std::max<int64_t>(1, request.mini_batch / (2 * request.cluster->size()));
  const std::vector<double> weights =
      NodeWeights(graph, *costs, request.cluster->kinds()[0], samples);
  double all = 0;
  for (double weight : weights) all += weight;
  std::vector<NodeId> heavy;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const bool cut = std::any_of(splits.begin(), splits.end(), [&](const OperatorSplit& split) {
      return split.node == graph.node(NodeId(v)).name;
    });
    if (!cut && 2 * request.cluster->size() * weights[v] > all && CutOf(graph, NodeId(v)).ok())
      heavy.emplace_back(v);
  }
  std::stable_sort(heavy.begin(), heavy.end(),
                   [&](NodeId a, NodeId b) { return weights[a.index()] > weights[b.index()]; });
  if (heavy.size() > kMostCandidates) heavy.resize(kMostCandidates);
  return heavy;
}

std::vector<OperatorSplit> With(std::vector<OperatorSplit> splits, const Graph& graph, NodeId node,
                                int32_t parts) {
  splits.push_back({graph.node(node).name, parts});
  return splits;
}

// The numbers of parts to try, ascending.
std::vector<int32_t> PartsOf(const PlanRequest& request, NodeId node) {
  std::vector<int32_t> parts;
  const absl::StatusOr<OperatorCut> cut = CutOf(*request.graph, node);
  for (int32_t count : kParts) {
    if (count <= request.cluster->size() && CheckParts(*request.graph, node, *cut, count).ok())
      parts.push_back(count);
  }
  return parts;
}

class SplitSearch {
 public:
  SplitSearch(const PlanRequest& request, const SearchContext& context,
              const ImprovementCallback& on_improvement, const WholeSolver& solver)
      : request_(request),
        context_(context),
        on_improvement_(on_improvement),
        solver_(solver),
        before_(context.work()) {
    request_.explain = false;  // Only the last answer is explained.
    most_work_ = request.options.effort * kMostWork;
  }

  // The answer with the operators cut, within so much work.
  absl::StatusOr<PlanResponse> Solve(const std::vector<OperatorSplit>& splits,
                                     Nanos work = SearchContext::kAnyWork) {
    std::shared_ptr<const SplitGraphs> graphs;
    if (!splits.empty()) {
      ASSIGN_OR_RETURN(graphs, SplitGraphsOf(request_, splits));
    }
    ImprovementCallback improved;
    if (on_improvement_) {
      improved = [&](JudgedPlan plan) {
        // What is not kept in the end is told nobody.
        if (plan.evaluation.iteration_time >= fastest_ ||
            (kept_.has_value() && !IsFasterBy(plan.evaluation.iteration_time, *kept_, kLeastGain)))
          return;
        fastest_ = plan.evaluation.iteration_time;
        if (graphs != nullptr) TellSplits(splits, graphs, plan);
        on_improvement_(plan);
      };
    }
    ASSIGN_OR_RETURN(PlanResponse response,
                     solver_.solve(graphs == nullptr ? request_ : RequestFor(request_, *graphs),
                                   improved, work, KnownBound(splits)));
    for (auto* judged : {&response.best, &response.sequential}) {
      if (judged->has_value() && graphs != nullptr) TellSplits(splits, graphs, **judged);
    }
    seconds_ += response.search_seconds;
    states_ += response.states;
    candidates_ += response.candidates;
    return response;
  }

  absl::StatusOr<PlanResponse> Try() {
    std::vector<OperatorSplit> splits;
    ASSIGN_OR_RETURN(const Nanos whole, BoundOf(splits));
    ASSIGN_OR_RETURN(const auto promise, BindingNode(splits, whole, whole));
    const double uncut = promise.has_value() ? kUncut * static_cast<double>(promise->bound) /
                                                   static_cast<double>(whole)
                                             : 1;
    ASSIGN_OR_RETURN(PlanResponse best, WithWhatFits(splits, uncut));
    kept_ = TimeOf(best);
    while (best.best.has_value() && splits.size() < kMostOperators && !context_.Expired() &&
           kTooLittle * WorkLeft() > most_work_) {
      ASSIGN_OR_RETURN(const auto binds, BindingNode(splits, best.lower_bound, TimeOf(best)));
      if (!binds.has_value()) break;
      ASSIGN_OR_RETURN(std::optional<PlanResponse> better,
                       BestOf(splits, binds->node, TimeOf(best)));
      if (!better.has_value()) break;
      best = *std::move(better);
      kept_ = TimeOf(best);
      splits = best.best->plan.strategy.splits;
    }
    if (!splits.empty()) Explain(splits, best);
    if (context_.Stopped() && best.termination == Termination::kFeasible) {
      best.termination = Termination::kLimit;
      best.reason = "the deadline came, or the request was cancelled, while operators were cut";
      best.warnings.push_back(
          absl::StrCat("the search ended early, so that a better plan may exist: ", best.reason));
    }
    return best;
  }

  // The figures of all searches together.
  void Add(PlanResponse& response) const {
    response.search_seconds = seconds_;
    response.states = states_;
    response.candidates = candidates_;
  }

 private:
  Nanos WorkLeft() const { return std::max<Nanos>(most_work_ - (context_.work() - before_), 0); }
  Nanos PartOfWork(double part) const {
    return static_cast<Nanos>(part * static_cast<double>(WorkLeft()));
  }

  // The answer with operators that fit no device cut, in as few parts as there is a plan for. That
  // an operator fits promises no plan: other things lie beside it. With this part of the work.
  absl::StatusOr<PlanResponse> WithWhatFits(std::vector<OperatorSplit>& splits, double part) {
    PlanResponse best;
    for (int32_t parts : kParts) {
      ASSIGN_OR_RETURN(std::vector<OperatorSplit> more, SplitsThatFit(parts));
      if (parts != kParts[0] && (more.empty() || more == splits)) break;
      ASSIGN_OR_RETURN(best, Solve(more, PartOfWork(part)));
      splits = std::move(more);
      if (best.best.has_value() || splits.empty()) return best;
      if (context_.Expired()) break;
    }
    splits.clear();  // Why the graph as it is does not fit is told.
    return Solve({}, PartOfWork(part));
  }

  // What must be cut so that each operator fits some device, in `least` parts or more; nothing if
  // cutting does not help.
  absl::StatusOr<std::vector<OperatorSplit>> SplitsThatFit(int32_t least) {
    std::vector<OperatorSplit> splits;
    ASSIGN_OR_RETURN(std::optional<std::string> large, TooLargeWith(splits));
    while (large.has_value() && splits.size() < kMostOperators) {
      const absl::StatusOr<NodeId> node = NodeToCut(*request_.graph, *large);
      if (!node.ok() || !CutOf(*request_.graph, *node).ok()) break;
      std::optional<std::string> next = large;
      for (int32_t parts : PartsOf(request_, *node)) {
        if (parts < least) continue;
        const std::vector<OperatorSplit> more = With(splits, *request_.graph, *node, parts);
        if (!SplitGraphsOf(request_, more).ok()) continue;
        ASSIGN_OR_RETURN(next, TooLargeWith(more));
        if (next.has_value() && !NodeToCut(*request_.graph, *next).ok()) continue;  // Still a part.
        splits = more;
        break;
      }
      if (next == large) break;
      large = std::move(next);
    }
    if (large.has_value()) splits.clear();
    return splits;
  }

  // The name of the node that is too large once these are cut.
  absl::StatusOr<std::optional<std::string>> TooLargeWith(
      const std::vector<OperatorSplit>& splits) {
    PlanRequest request = request_;
    std::shared_ptr<const SplitGraphs> graphs;
    if (!splits.empty()) {
      ASSIGN_OR_RETURN(graphs, SplitGraphsOf(request_, splits));
      request = RequestFor(request_, *graphs);
    }
    ASSIGN_OR_RETURN(const std::optional<NodeId> node, solver_.too_large(request));
    if (!node.has_value()) return std::nullopt;
    return request.graph->node(*node).name;
  }

  struct Binding {
    NodeId node;
    Nanos bound = 0;  // With it cut.
  };
  // The node whose cutting lowers the bound most, if it lowers it, and below what was found.
  absl::StatusOr<std::optional<Binding>> BindingNode(const std::vector<OperatorSplit>& splits,
                                                     Nanos lower_bound, Nanos found) {
    std::optional<Binding> binds;
    for (NodeId node : HeavyNodes(request_, splits)) {
      const std::vector<int32_t> parts = PartsOf(request_, node);
      if (parts.empty()) continue;
      ASSIGN_OR_RETURN(const Nanos bound,
                       BoundOf(With(splits, *request_.graph, node, parts.back())));
      if (!IsFasterBy(bound, lower_bound, kLeastGain) || !IsFasterBy(bound, found, kLeastGain) ||
          (binds.has_value() && bound >= binds->bound))
        continue;
      binds = {node, bound};
    }
    return binds;
  }

  // The bound with the operators cut, the largest of all where that cannot be.
  absl::StatusOr<Nanos> BoundOf(const std::vector<OperatorSplit>& splits) {
    if (const auto known = KnownBound(splits)) return *known;
    Nanos bound = std::numeric_limits<Nanos>::max();  // Its parameters are read by others, too.
    if (splits.empty()) {
      ASSIGN_OR_RETURN(bound, solver_.lower_bound(request_));
    } else if (const auto graphs = SplitGraphsOf(request_, splits); graphs.ok()) {
      ASSIGN_OR_RETURN(bound, solver_.lower_bound(RequestFor(request_, **graphs)));
    }
    bounds_.emplace_back(splits, bound);
    return bound;
  }

  std::optional<Nanos> KnownBound(const std::vector<OperatorSplit>& splits) const {
    for (const auto& [known, bound] : bounds_) {
      if (known == splits) return bound;
    }
    return std::nullopt;
  }

  absl::StatusOr<std::optional<PlanResponse>> BestOf(const std::vector<OperatorSplit>& splits,
                                                     NodeId node, Nanos before) {
    // What promises most comes first: it may show that the rest promises nothing.
    std::vector<std::pair<Nanos, std::vector<OperatorSplit>>> tries;
    for (int32_t parts : PartsOf(request_, node)) {
      std::vector<OperatorSplit> more = With(splits, *request_.graph, node, parts);
      ASSIGN_OR_RETURN(const Nanos bound, BoundOf(more));
      tries.emplace_back(bound, std::move(more));
    }
    std::stable_sort(tries.begin(), tries.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::optional<PlanResponse> best;
    for (auto one = tries.begin(); one != tries.end() && !context_.Expired(); ++one) {
      const auto& [bound, more] = *one;
      if (!IsFasterBy(bound, best.has_value() ? TimeOf(*best) : before, kLeastGain)) break;
      // Shared out evenly between those that promise as much, with half of a part left for others.
      const double alike =
          0.5 + static_cast<double>(std::count_if(one, tries.end(), [&](const auto& t) {
            return static_cast<double>(t.first) < kAlike * static_cast<double>(one->first);
          }));
      ASSIGN_OR_RETURN(PlanResponse response, Solve(more, PartOfWork(1 / alike)));
      if (!response.best.has_value() || !IsFasterBy(TimeOf(response), before, kLeastGain)) continue;
      if (!best.has_value() || TimeOf(response) < TimeOf(*best)) best = std::move(response);
    }
    return best;
  }

  void Explain(const std::vector<OperatorSplit>& splits, PlanResponse& response) const {
    for (const OperatorSplit& split : splits) {
      const NodeId node = *NodeToCut(*request_.graph, split.node);
      if (CutOf(*request_.graph, node)->known) continue;
      const std::string& module = request_.graph->node(node).module;
      response.warnings.push_back(absl::StrCat(
          "node ", split.node, module.empty() ? "" : absl::StrCat(" (", module, ")"), " is cut in ",
          split.parts, " as if it were a linear layer, which the profile does not ",
          "say; --split-operators off leaves it whole"));
    }
  }

  PlanRequest request_;
  const SearchContext& context_;
  const ImprovementCallback& on_improvement_;
  const WholeSolver& solver_;
  Nanos fastest_ = std::numeric_limits<Nanos>::max();  // The last improvement told.
  std::optional<Nanos> kept_;                          // The time of the best plan so far.
  const Nanos before_;                                 // The context's work when the search began.
  Nanos most_work_ = 0;
  std::vector<std::pair<std::vector<OperatorSplit>, Nanos>> bounds_;
  double seconds_ = 0;
  int64_t states_ = 0, candidates_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const SplitGraphs>> SplitGraphsOf(
    const PlanRequest& request, const std::vector<OperatorSplit>& splits) {
  const auto wrong = [](const absl::Status& status) {
    return WithField(Annotate(status, "options.split_operators"), "options.splits");
  };
  if (request.costs != nullptr) {
    return wrong(
        absl::InvalidArgumentError("the costs given are those of the operators as they are"));
  }
  auto graph = SplitOperators(*request.graph, splits);
  if (!graph.ok()) return wrong(graph.status());
  std::vector<Graph> lengths;
  if (request.lengths != nullptr) {
    auto split = SplitOperators(*request.lengths, splits);
    if (!split.ok()) return wrong(split.status());
    lengths = *std::move(split);
  }
  return std::make_shared<const SplitGraphs>(SplitGraphs{*std::move(graph), std::move(lengths)});
}

PlanRequest RequestFor(PlanRequest request, const SplitGraphs& graphs) {
  request.graph = &graphs.graph;
  request.lengths = &graphs.lengths;
  request.options.splits.clear();
  return request;
}

void TellSplits(const std::vector<OperatorSplit>& splits,
                const std::shared_ptr<const SplitGraphs>& graphs, JudgedPlan& judged) {
  judged.plan.strategy.splits = splits;
  judged.split_graphs = graphs;
}

absl::StatusOr<PlanResponse> SolveWithSplits(const PlanRequest& request, bool tries,
                                             const SearchContext& context,
                                             const ImprovementCallback& on_improvement,
                                             const WholeSolver& solver) {
  const bool named = !request.options.splits.empty();
  tries = tries && request.options.try_splits && request.costs == nullptr;
  if (!named && !tries)
    return solver.solve(request, on_improvement, SearchContext::kAnyWork, std::nullopt);
  SplitSearch search(request, context, on_improvement, solver);
  ASSIGN_OR_RETURN(PlanResponse response,
                   named ? search.Solve(request.options.splits) : search.Try());
  search.Add(response);
  if (request.explain && response.best.has_value()) {
    ASSIGN_OR_RETURN(response.explanation,
                     ExplainStrategy(request, response.best->plan.strategy, context));
  }
  return response;
}

}  // namespace stagewright
