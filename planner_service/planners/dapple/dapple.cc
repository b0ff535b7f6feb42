// DAPPLE's planner: from a problem to a strategy.
//
// Problem: stages, replicas and device sets for a model on a cluster, so that one synchronous
// mini-batch takes as little time as can be. The objective, with its pivot stage, is in
// objective.h, the recurrence with notation and complexity in search.h, the placement policies in
// placement.h.
//
// Complexity: for each of at most kMostSizes micro-batch sizes one search (search.h) over at most
// kMostCuts cuts and a few simulations.
//
// Deviations from the paper and the published program (1 to 3: search.h, 10: objective.h):
//  4. Simulation decides. L models no bubbles inside the pivot stage and no messages that meet on a
//     link: the best few plans by L of each micro-batch size become candidates, each with the
//     in-flight micro-batches of policies PA and PB, and the simulated iteration time decides.
//  5. Every plan rated. The program minimises the bottleneck and ranks only its winners and all
//     two-stage plans by a formula; here all plans of the recurrence are rated by L, that of one
//     stage (plain data parallelism) included.
//  6. Times of shares. Times are those of the replicas' shares of a micro-batch, not a quotient;
//     messages and all-reduces are those of the cluster's links.
//  7. Memory. A stage must fit with one micro-batch in flight; D, the most that fit, bounds PA and
//     PB, and no stage has more in flight than the one before it. The program never checks memory.
//  8. One ring. On several nodes a few plans for gradients that are summed in one ring are judged,
//     too: what L leaves out can make them better than those for the sums as they are simulated.
//  9. Views of the cluster. Where devices, memories or links differ, several views of the cluster
//     are searched (search/placement_views.h).
//
// Reference: Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models",
// PPoPP 2021.
#include "planner_service/planners/dapple/dapple.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/graph/dag.h"
#include "common/graph/series_parallel.h"
#include "common/policies/early_backward.h"
#include "common/strategy/stage_edges.h"
#include "planner_service/models/fitting_in_flight.h"
#include "planner_service/models/stage_maker.h"
#include "planner_service/planners/dapple/chain.h"
#include "planner_service/planners/dapple/network.h"
#include "planner_service/planners/dapple/search.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/one_stage.h"
#include "planner_service/search/search_views.h"

namespace stagewright {
namespace {

using namespace dapple;  // NOLINT: the planner's own parts.

constexpr int32_t kMostCuts = 160;
constexpr int32_t kMostDecomposed = 1500;  // Operators; beyond, the graph's own order is the chain.
constexpr size_t kMostSizes = 5;
constexpr int64_t kMostSimulations = 16;
constexpr size_t kMostRingSizes = 2;
constexpr int64_t kMostRingSimulations = 6;
// A pipeline is taken to have filled after so many micro-batches when their sizes are compared.
constexpr double kMostToFill = 3;
constexpr double kPromising = 1.3;

std::vector<OperatorId> ChainOrder(const Problem& problem) {
  const Dag& dag = problem.operators->dag();
  if (dag.size() > kMostDecomposed) return ModelOrder(problem);
  const std::vector<int32_t> order = Linearize(Decompose(dag));
  return std::vector<OperatorId>(order.begin(), order.end());
}

class PlanSearch {
 public:
  PlanSearch(const Problem& problem, const PlanOptions& options, const SearchContext& context,
             Judge& judge)
      : problem_(problem),
        options_(options),
        context_(context),
        oracle_(problem, context.Expired() ? ModelOrder(problem) : ChainOrder(problem)),
        network_(*problem.cluster),
        rings_(*problem.cluster, ClusterNetwork::Sums::kRing),
        placements_(*problem.cluster),
        judge_(judge) {}

  absl::Status Run(Outcome& found) {
    RETURN_IF_ERROR(judge_.Consider(OneStageProposals(oracle_, options_), kMostSimulations, 1e9));
    const Chain chain(oracle_, kMostCuts);
    const double fill = std::min<double>(problem_.cluster->size(), kMostToFill);
    const std::vector<int64_t> sizes =
        PromisingSizes(oracle_, options_, {fill}, kMostSizes, context_);
    std::vector<Proposal> proposals;
    for (int64_t size : sizes) {
      if (context_.Expired()) break;
      Propose(chain, network_, size, proposals);
    }
    RETURN_IF_ERROR(judge_.Consider(std::move(proposals), kMostSimulations, kPromising));
    RETURN_IF_ERROR(JudgeRings(chain, sizes));
    found.states += visited_;
    return absl::OkStatus();
  }

 private:
  // Plans for sums in one ring, of the sizes that promise most: fewer, wider stages between nodes.
  absl::Status JudgeRings(const Chain& chain, const std::vector<int64_t>& sizes) {
    const auto devices = problem_.cluster->devices();
    const bool one_node = std::all_of(devices.begin(), devices.end(), [&](const Device& device) {
      return device.node == devices[0].node;
    });
    std::vector<Proposal> proposals;
    for (size_t i = 0; i < std::min(sizes.size(), kMostRingSizes) && !one_node; ++i) {
      if (context_.Expired()) break;
      Propose(chain, rings_, sizes[i], proposals);
    }
    return judge_.Consider(std::move(proposals), kMostRingSimulations, kPromising);
  }

  void Propose(const Chain& chain, const Network& network, int64_t size,
               std::vector<Proposal>& proposals) {
    const ChainCosts costs = chain.CostsOf(size, problem_.cluster->size());
    SearchOptions search;
    search.micro_batches = problem_.mini_batch / size;
    search.most_replicas =
        static_cast<int32_t>(std::min<int64_t>(MostReplicas(problem_, options_, size), 1 << 20));
    search.most_stages = options_.num_stages > 0 ? options_.num_stages : options_.max_stages;
    search.exact_stages = options_.num_stages > 0;
    const StageOracle::Flow alone{size, 1, search.micro_batches};
    if (oracle_.Memory(0, oracle_.size(), alone) > oracle_.budget()) {
      search.fits = [&](int32_t begin, int32_t end, int32_t replicas) {
        return MostInFlight(chain.Position(begin), chain.Position(end), replicas, size) > 0;
      };
    }
    const SearchResult found = SearchChain(costs, network, placements_, search, context_);
    visited_ += found.visited;
    for (const ChainPlan& plan : found.plans) {
      for (bool deep : {false, true}) {
        if (deep && plan.stages.size() == 1) continue;
        Proposal proposal;
        proposal.strategy = Build(chain, plan, size, deep);
        proposal.estimate = plan.latency;
        proposal.text = Text(plan, size, deep);
        proposals.push_back(std::move(proposal));
      }
    }
  }

  // D: micro-batches of `size` samples that may be in flight on each of `replicas`; 0 if none.
  int64_t MostInFlight(int32_t begin, int32_t end, int32_t replicas, int64_t size) const {
    const StageOracle::Flow flow{(size + replicas - 1) / replicas, 1, problem_.mini_batch / size};
    return FittingInFlight(oracle_, begin, end, flow, oracle_.budget());
  }

  Strategy Build(const Chain& chain, const ChainPlan& plan, int64_t size, bool deep) const {
    const StageMaker maker(problem_);
    const std::span<const OperatorId> order = oracle_.order();
    Strategy strategy = EmptyStrategy(problem_, StrategyKind::kSequential);
    int64_t before = problem_.mini_batch / size;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      const ChainStage& own = plan.stages[s];
      const int32_t begin = chain.Position(own.begin);
      const int32_t end = chain.Position(own.end);
      Stage stage = maker.Make(order.subspan(begin, end - begin));
      stage.micro_batch = size;
      stage.devices = placements_.Devices(own.devices);
      const auto depth = static_cast<int32_t>(plan.stages.size() - s);
      const auto replicas = static_cast<int32_t>(stage.devices.size());
      const int64_t most = std::max<int64_t>(1, MostInFlight(begin, end, replicas, size));
      const int64_t limit = std::min(most, before);
      before = deep ? PbInFlight(depth, limit) : PaInFlight(depth, limit);
      stage.schedule = {before * size, 1};
      strategy.stages.push_back(std::move(stage));
    }
    strategy.edges = StageEdges(*problem_.graph, strategy.kind, strategy.stages);
    return strategy;
  }

  static std::string Text(const ChainPlan& plan, int64_t size, bool deep) {
    std::string text = absl::StrCat("b", size, deep ? " PB" : " PA");
    for (const ChainStage& stage : plan.stages) {
      absl::StrAppend(&text, " [", stage.begin, ",", stage.end, ")@", stage.devices);
    }
    return text;
  }

  const Problem& problem_;
  const PlanOptions& options_;
  const SearchContext& context_;
  StageOracle oracle_;
  ClusterNetwork network_;
  ClusterNetwork rings_;
  Placements placements_;
  Judge& judge_;
  int64_t visited_ = 0;
};

class DapplePlanner : public Planner {
 public:
  std::string name() const override { return "dapple"; }
  std::string description() const override {
    return "sequential pipelines placed by node for the least latency (DAPPLE, PPoPP 2021)";
  }
  PlannerAbilities abilities() const override { return {.recompute_always = false}; }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return SearchViews(name(), problem, options, context, /*loops=*/1,
                       [&](const Problem& seen, Judge& judge, Outcome& found) {
                         return PlanSearch(seen, options, context, judge).Run(found);
                       });
  }
};

}  // namespace

std::unique_ptr<Planner> MakeDapplePlanner() { return std::make_unique<DapplePlanner>(); }

}  // namespace stagewright
