// PipeDream's planner: from a problem to a strategy.
//
// Problem: stages with replicas for a model on a cluster, so that a full pipeline is as fast as can
// be. Notation, recurrence and complexity: recurrence.h; the objective as the paper and as the
// published program have it: objective.h; cuts of branching models: states.h.
//
// Complexity: for each of at most kMostSizes micro-batch sizes, one flat run of the recurrence and
// one over the nodes of the cluster: O(S^2 M^2) and O(S^3 m^2) for S states, M devices, m in a
// node.
//
// Deviations from the paper and the published program:
//  1. Objective. The program's objective (compute and synchronisation in turn, transfers shared by
//     replicas) is used, with gradients summed once per mini-batch instead of once per micro-batch
//     in synchronous pipelines. Asynchronous ones, whose sums run beside every backward pass, are
//     searched with the larger of compute and synchronisation, too, as in the paper.
//  2. Simulation decides. The bottleneck proposes, the simulated iteration time decides: for
//     several micro-batch sizes, flat and hierarchical, the least bottleneck and a few per cent
//     more, each with the fewest stages that reach it, become candidates. A flush costs in
//     proportion to the stages.
//  3. Shared micro-batches. Replicas share each micro-batch instead of taking turns (minibatch_id
//     mod replicas), so that a stage has as many micro-batches in flight as there are stages from
//     it to the end, or NOAM if that is more (AsynchronousInFlight). Times are those of the shares,
//     not a quotient.
//  4. Several sources. Models with several sources are cut like all others; the program starts from
//     one of them.
//  5. Bounded states. Beyond kMostStates downsets, the prefixes of up to seven topological orders
//     are the states: a stage may run from a prefix of one to a larger prefix of another.
//     Hierarchical runs have fewer states, since they solve a flat problem from each.
//  6. Memory. It is a constraint on stages (activations of all micro-batches in flight, versions of
//     the weights), not an option; what the evaluator refuses nevertheless is searched again with
//     less. With vertical sync (section 3.3, an option of the paper) all stages hold as many
//     versions as the first, which is found last: the search first counts each stage's own, and if
//     the evaluator refuses all it finds, as many as there may be at most.
//  7. Useful devices. Where the micro-batch or the model is too small for all devices, as many as
//     are useful are used. One stage on one device and on all are evaluated first.
//  8. Limits on stages. With one, only the flat network is searched.
//  9. Views of the cluster. Where devices, memories or links differ, the recurrence, which knows
//     one kind of device and one bandwidth a level, runs on several views of the cluster
//     (search/placement_views.h).
//
// Reference: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP
// 2019; Harlap et al., "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", 2018.
#include "planner_service/planners/pipedream/pipedream.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/graph/dag.h"
#include "planner_service/planners/pipedream/build.h"
#include "planner_service/planners/pipedream/layers.h"
#include "planner_service/planners/pipedream/partition.h"
#include "planner_service/search/memory_shares.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/one_stage.h"
#include "planner_service/search/search_views.h"

namespace stagewright {
namespace {

using namespace pipedream;  // NOLINT: the planner's own parts.

constexpr int32_t kMostStates = 1024;
constexpr int32_t kMostHierarchicalStates = 192;
// Tables have an entry per state, machine and stage.
constexpr int64_t kMostEntries = 1 << 23;
constexpr size_t kMostSizes = 6;
// A pipeline is taken to have filled after so many micro-batches when their sizes are compared.
constexpr double kMostToFill = 3;
constexpr double kSlacks[] = {1, 1.08, 1.25};
constexpr int64_t kMostSimulations = 12;
constexpr double kPromising = 1.3;

class PipeDreamSearch {
 public:
  PipeDreamSearch(const Problem& problem, const PlanOptions& options, const SearchContext& context,
                  Judge& judge)
      : problem_(problem),
        options_(options),
        context_(context),
        oracle_(problem, ModelOrder(problem)),
        layers_(oracle_),
        judge_(judge) {}

  absl::Status Run(Outcome& found) {
    RETURN_IF_ERROR(judge_.Consider(OneStageProposals(oracle_, options_), kMostSimulations, 1e9));
    const bool one_stage = judge_.best() != nullptr;
    const auto attempt = [&](double share) -> absl::StatusOr<bool> {
      const int64_t before = judge_.count();
      RETURN_IF_ERROR(Consider({share, false}));
      if (judge_.count() == before || judge_.best() != nullptr || one_stage) return false;
      if (!options_.vertical_sync) return true;
      RETURN_IF_ERROR(Consider({share, true}));
      return judge_.best() == nullptr;
    };
    RETURN_IF_ERROR(TryMemoryShares(kChainShares, attempt));
    found.states += visited_;
    return absl::OkStatus();
  }

 private:
  // What the search takes memory for.
  struct Memory {
    double share = 1;  // Share of the devices' memory that may be filled.
    // All stages keep the most versions of the weights, as vertical sync may need.
    bool most_versions = false;
  };

  // By both objectives where sums run beside every backward pass.
  absl::Status Consider(Memory memory) {
    for (const bool overlapped_sync : {false, true}) {
      if (overlapped_sync && !options_.asynchronous) break;
      RETURN_IF_ERROR(
          judge_.Consider(Proposals(memory, overlapped_sync), kMostSimulations, kPromising));
    }
    return absl::OkStatus();
  }

  const States& StatesOf(int32_t most) {
    auto it = states_.find(most);
    if (it == states_.end()) {
      std::vector<double> weight(oracle_.size());
      const ShareCosts& one = oracle_.Share(1);
      for (int32_t p = 0; p < oracle_.size(); ++p) weight[p] = one.Time(p, p + 1);
      it =
          states_
              .try_emplace(most, layers_.dag(), weight, layers_.output_per_sample(), most, context_)
              .first;
    }
    return it->second;
  }

  std::vector<Proposal> Proposals(Memory memory, bool overlapped_sync) {
    std::vector<Proposal> proposals;
    const std::vector<Level> flat = FlatLevels(*problem_.cluster);
    const std::vector<Level> nodes = HierarchicalLevels(*problem_.cluster);
    const double fill = std::min<double>(problem_.cluster->size(), kMostToFill);
    const bool limited = options_.num_stages > 0 || options_.max_stages > 0;
    for (int64_t size : PromisingSizes(oracle_, options_, {fill}, kMostSizes, context_)) {
      if (context_.Expired()) break;
      Propose(flat, size, memory, overlapped_sync, proposals);
      if (!nodes.empty() && !limited &&
          MostReplicas(problem_, options_, size) >= nodes[0].machines) {
        Propose(nodes, size, memory, overlapped_sync, proposals);
      }
    }
    return proposals;
  }

  Limits LimitsOf(const States& states, int64_t size, Memory memory) const {
    Limits limits;
    limits.most_replicas =
        static_cast<int32_t>(std::min<int64_t>(MostReplicas(problem_, options_, size), 1 << 20));
    limits.most_stages = options_.num_stages > 0 ? options_.num_stages : options_.max_stages;
    limits.exact_stages = options_.num_stages > 0;
    limits.memory = layers_.MemoryOf(states, size, options_.asynchronous, memory.share);
    if (memory.most_versions) {
      const int64_t most = std::min<int64_t>(problem_.cluster->size(), problem_.mini_batch / size);
      limits.memory.least_versions = static_cast<double>(most - 1);  // Beside the resident one.
    }
    return limits;
  }

  // Adds the pipelines of one micro-batch size on one network.
  void Propose(std::vector<Level> levels, int64_t size, Memory memory, bool overlapped_sync,
               std::vector<Proposal>& proposals) {
    const int32_t stages = std::min(oracle_.size(), options_.num_stages > 0   ? options_.num_stages
                                                    : options_.max_stages > 0 ? options_.max_stages
                                                                              : oracle_.size());
    if (levels.size() == 1) {
      const int64_t replicas = MostReplicas(problem_, options_, size);
      levels[0].machines =
          static_cast<int32_t>(std::min<int64_t>(levels[0].machines, stages * replicas));
    }
    const int64_t tables = stages < oracle_.size() ? stages : 1;
    const int64_t room = std::max<int64_t>(64, kMostEntries / tables / (levels[0].machines + 1));
    const int32_t most = levels.size() > 1 ? kMostHierarchicalStates : kMostStates;
    const States& states = StatesOf(static_cast<int32_t>(std::min<int64_t>(most, room)));
    context_.Spend(work::kStateLayer * int64_t{states.size()} * oracle_.size());
    const Limits limits = LimitsOf(states, size, memory);
    Rules rules = RulesAsCoded();
    rules.overlapped_sync = overlapped_sync;
    if (!options_.asynchronous) {
      rules.syncs = static_cast<double>(size) / static_cast<double>(problem_.mini_batch);
    }
    Partitioner partitioner(states, layers_.CostsOf(states, size, levels[0].machines), rules,
                            levels, limits, context_);
    partitioner.Run();
    visited_ += partitioner.visited();
    for (double slack : kSlacks) {
      const std::vector<PlannedStage> stages_found = partitioner.Stages(slack);
      if (stages_found.empty()) continue;
      Proposal proposal;
      proposal.strategy = BuildStrategy(oracle_, stages_found, size, options_.asynchronous);
      proposal.strategy.vertical_sync = options_.vertical_sync;
      const double count = static_cast<double>(problem_.mini_batch / size);
      const double fill =
          options_.asynchronous ? 0 : static_cast<double>(proposal.strategy.stages.size() - 1);
      proposal.estimate = partitioner.bottleneck() * slack * (count + fill);
      proposal.text = absl::StrCat("b", size, " ", pipedream::ToString(stages_found));
      proposals.push_back(std::move(proposal));
      if (limits.most_stages > 0) break;
    }
  }

  const Problem& problem_;
  const PlanOptions& options_;
  const SearchContext& context_;
  StageOracle oracle_;
  Layers layers_;
  Judge& judge_;
  std::map<int32_t, States> states_;
  int64_t visited_ = 0;
};

class PipeDreamPlanner : public Planner {
 public:
  std::string name() const override { return "pipedream"; }
  std::string description() const override {
    return "sequential pipelines with replicated stages, flat or by node (PipeDream, SOSP 2019)";
  }
  PlannerAbilities abilities() const override {
    return {.asynchronous = true, .recompute_always = false};
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return SearchViews(name(), problem, options, context, /*loops=*/1,
                       [&](const Problem& seen, Judge& judge, Outcome& found) {
                         return PipeDreamSearch(seen, options, context, judge).Run(found);
                       });
  }
};

}  // namespace

std::unique_ptr<Planner> MakePipeDreamPlanner() { return std::make_unique<PipeDreamPlanner>(); }

}  // namespace stagewright
