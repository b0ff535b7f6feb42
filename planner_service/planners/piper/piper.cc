// Piper's planner: from a problem to a strategy.
//
// Problem: convex stages with replicas and recomputation, so that the slowest stage of a full
// pipeline is as fast as can be within memory. The objective and its notation are in objective.h,
// the recurrence and its complexity in solve.cc.
//
// Deviations from the original (1 to 3: solve.cc):
//  4. Simulation decides. The bottleneck proposes, the simulated iteration time decides: pipelines
//     fill and drain. Every promising size of shares has a least bottleneck, each partition is
//     tried with the micro-batch sizes that give every replica a sample, and the evaluator picks.
//  5. Shared micro-batches. Replicas share each micro-batch instead of taking turns. With
//     micro-batches per stage allowed, a stage of d replicas also gets micro-batches d times as
//     large, which comes to the same.
//  6. Whole stages recompute. Strategies say so per stage; objective.h and solve.h choose per
//     operator where a profile is planned as the original does.
//  7. Tensor parallelism. Strategies have no tensor-parallel stages yet, so of profiles that have
//     such configurations those of one device are used, and the outcome says so. solve.h plans with
//     all of them.
//  8. Memory. It follows the rules of the evaluator; what it refuses nevertheless is searched again
//     with less memory.
//  9. One stage first. One stage on one device and on all are evaluated first, so that a deadline
//     leaves an answer.
// 10. Views of the cluster. Where devices, memories or links differ, several views of the cluster
//     are searched (search/placement_views.h).
#include "planner_service/planners/piper/piper.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/strategy/in_flight.h"
#include "planner_service/models/draft.h"
#include "planner_service/planners/piper/from_problem.h"
#include "planner_service/planners/piper/solve.h"
#include "planner_service/search/memory_shares.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/one_stage.h"
#include "planner_service/search/placement.h"
#include "planner_service/search/search_views.h"

namespace stagewright {
namespace {

constexpr size_t kMostSizes = 5;
constexpr size_t kMostSimulations = 16;
constexpr double kPromising = 1.5;
// Micro-batches times devices that a program may have unless memory asks for more.
constexpr int64_t kLongProgram = 1 << 12;

class PiperSearch {
 public:
  PiperSearch(const Problem& problem, const PlanOptions& options, const SearchContext& context,
              Judge& judge)
      : problem_(problem),
        options_(options),
        context_(context),
        oracle_(problem, ModelOrder(problem)),
        costs_(problem),
        judge_(judge) {}

  absl::Status Run(Outcome& found) {
    RETURN_IF_ERROR(judge_.Consider(OneStage(), kMostSimulations, 1e9));
    const auto attempt = [&](double share) -> absl::StatusOr<bool> {
      const int64_t before = judge_.count();
      const absl::Status rejected_before = judge_.rejection();
      std::vector<Proposal> proposals = Proposals(share);
      const auto all = static_cast<int64_t>(proposals.size());
      RETURN_IF_ERROR(judge_.Consider(std::move(proposals), all, kPromising));
      if (context_.Expired()) return false;
      if (judge_.best() != nullptr && judge_.rejection() == rejected_before) return false;
      // Nothing fits: small micro-batches may, less memory will not.
      if (judge_.count() == before && (long_programs_ || judge_.best() != nullptr)) return false;
      long_programs_ = judge_.best() == nullptr;
      return true;
    };
    RETURN_IF_ERROR(TryMemoryShares(kChainShares, attempt));
    found.states += states_;
    if (over_limit_) {
      found.termination = Termination::kLimit;
      found.reason = absl::StrCat("the graph has more than ", PiperLimits().downsets,
                                  " downsets: only cuts of topological orders were searched");
    }
    return absl::OkStatus();
  }

 private:
  // One stage neither recomputes nor is asynchronous.
  std::vector<Proposal> OneStage() const {
    if (options_.recompute == RecomputePolicy::kAlways) return {};
    PlanOptions options = options_;
    options.asynchronous = options.vertical_sync = false;
    return OneStageProposals(oracle_, options);
  }

  // Sizes of shares by what they promise: work, and a pipeline that fills fast.
  std::vector<int64_t> Sizes() const {
    const double fill = std::min<double>(problem_.cluster->size(), 4) - 1;
    const auto too_long = [&](int64_t size) {
      return !long_programs_ && IsLong(problem_.mini_batch / size) && size < problem_.mini_batch;
    };
    return PromisingSizes(oracle_, options_, {fill, too_long}, kMostSizes, context_);
  }

  bool IsLong(int64_t micro_batches) const {
    return options_.micro_batch == 0 && micro_batches * problem_.cluster->size() > kLongProgram;
  }

  PiperLimits LimitsFor(int64_t size, bool replicas, bool lattice) const {
    PiperLimits limits;
    if (!lattice) limits.downsets = 0;
    limits.min_stages = options_.num_stages;
    limits.max_stages = options_.num_stages > 0 ? options_.num_stages : options_.max_stages;
    limits.most_replicas = 1;
    if (replicas) {
      const int64_t most = options_.micro_batch > 0 ? size : problem_.mini_batch;
      limits.most_replicas = static_cast<int32_t>(
          std::min<int64_t>(MostReplicas(problem_, options_, most), problem_.cluster->size()));
    }
    return limits;
  }

  // A proposal before it is a strategy, which takes time to build.
  struct Idea {
    Draft draft;
    // Each stage has its own micro-batch, of this many samples a replica; 0: all have one.
    int64_t share = 0;
    double estimate = 0;  // If all it does slows down with smaller shares as the model's passes do.
    double least = 0;     // If nothing does.
  };

  // The best partition of every size, with replicas where they are allowed and without: of the most
  // promising size over all downsets, of the others over topological orders.
  std::vector<Proposal> Proposals(double memory_share) {
    std::vector<Idea> ideas[2];  // Without replicas, with.
    bool lattice = true;
    for (int64_t size : Sizes()) {
      if (context_.Expired()) break;
      const PiperProblem piper = PiperProblemOf(costs_, size, memory_share, options_.recompute);
      bool found = false;
      for (const bool replicas : {true, false}) {
        if (replicas && !options_.allow_replicas) continue;
        const PiperAnswer answer = SolvePiper(piper, LimitsFor(size, replicas, lattice), context_);
        states_ += answer.states;
        if (lattice && !answer.lattice && !answer.expired) over_limit_ = true;
        if (!answer.partition) continue;
        found = true;
        AddIdeas(*answer.partition, size, answer.objective, ideas[replicas ? 1 : 0]);
      }
      if (found) lattice = false;
    }
    std::vector<Proposal> proposals;
    std::set<std::string> known;
    for (std::vector<Idea>& some : ideas) AddPromising(std::move(some), known, proposals);
    return proposals;
  }

  // Passes slow down with smaller shares, messages do not: ideas that are the best by either
  // estimate.
  void AddPromising(std::vector<Idea> ideas, std::set<std::string>& known,
                    std::vector<Proposal>& proposals) const {
    for (double Idea::*estimate : {&Idea::estimate, &Idea::least}) {
      std::stable_sort(ideas.begin(), ideas.end(),
                       [&](const Idea& a, const Idea& b) { return a.*estimate < b.*estimate; });
      for (size_t i = 0; i < ideas.size() && i < kMostSimulations; ++i) {
        if (context_.Expired() || ideas[i].*estimate > kPromising * ideas[0].*estimate) break;
        Proposal proposal = Build(ideas[i]);
        if (known.insert(proposal.text).second) proposals.push_back(std::move(proposal));
      }
    }
  }

  void AddIdeas(const PiperPartition& partition, int64_t size, double objective,
                std::vector<Idea>& ideas) const {
    Idea idea;
    idea.draft.kind = options_.sequential ? StrategyKind::kSequential : StrategyKind::kGraph;
    std::vector<int32_t> replicas;
    for (const PiperStage& stage : partition) replicas.push_back(stage.replicas);
    const auto devices = PlaceStages(*problem_.cluster, replicas);
    for (size_t s = 0; s < partition.size(); ++s) {
      DraftStage& stage = idea.draft.stages.emplace_back();
      stage.operators = partition[s].operators;
      for (DeviceId device : devices[s]) stage.devices.push_back(device.value());
      std::sort(stage.devices.begin(), stage.devices.end());
      stage.recompute = Recomputes(partition[s]);
    }
    // The objective is that of shares of `size`; the whole model tells how others compare.
    const double per_sample = objective * 1e-9 / static_cast<double>(size);
    const int32_t most = *std::max_element(replicas.begin(), replicas.end());
    const auto batch = static_cast<double>(problem_.mini_batch);
    const auto fill = static_cast<double>(partition.size() - 1);
    for (int64_t micro_batch : MicroBatchSizes(problem_, options_, Rounding::kDown)) {
      if (MostReplicas(problem_, options_, micro_batch) < most) continue;
      const int64_t count = problem_.mini_batch / micro_batch;
      if (!long_programs_ && IsLong(count) && micro_batch < problem_.mini_batch) continue;
      idea.draft.micro_batch = micro_batch;
      const double slower = PerSample(std::max<int64_t>(1, micro_batch / most)) / PerSample(size);
      idea.least = per_sample * (batch + fill * static_cast<double>(micro_batch));
      idea.estimate = slower * idea.least;
      ideas.push_back(idea);
    }
    if (options_.per_stage_micro_batch && options_.micro_batch == 0 && most > 1) {
      idea.share = size;
      idea.estimate = idea.least = per_sample * (batch + fill * static_cast<double>(size));
      ideas.push_back(std::move(idea));
    }
  }

  // The model's passes on one device, ns.
  double PerSample(int64_t share) const {
    return oracle_.Share(share).Time(0, oracle_.size()) / static_cast<double>(share);
  }

  Proposal Build(const Idea& idea) const {
    Proposal proposal;
    proposal.strategy = ToStrategy(problem_, idea.draft);
    proposal.estimate = std::min(idea.estimate, idea.least);
    proposal.text = ToString(idea.draft);
    if (idea.share == 0) return proposal;
    for (Stage& stage : proposal.strategy.stages) {
      stage.micro_batch = idea.share * static_cast<int64_t>(stage.devices.size());
    }
    AssignInFlight(proposal.strategy);
    absl::StrAppend(&proposal.text, " shares of ", idea.share);
    return proposal;
  }

  bool Recomputes(const PiperStage& stage) const {
    return options_.recompute == RecomputePolicy::kAlways ||
           std::find(stage.recompute.begin(), stage.recompute.end(), true) != stage.recompute.end();
  }

  const Problem& problem_;
  const PlanOptions& options_;
  const SearchContext& context_;
  StageOracle oracle_;
  OperatorCosts costs_;
  Judge& judge_;
  bool long_programs_ = false;
  bool over_limit_ = false;
  int64_t states_ = 0;
};

bool HasTensorParallelConfigurations(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.cost && !node.cost->configurations.empty() &&
        node.cost->configurations.back().tensor_parallel > 1) {
      return true;
    }
  }
  return false;
}

class PiperPlanner : public Planner {
 public:
  std::string name() const override { return "piper"; }
  std::string description() const override {
    return "stages between downsets with replicas and recomputation per stage (Piper, NeurIPS "
           "2021)";
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    ASSIGN_OR_RETURN(Outcome outcome,
                     SearchViews(name(), problem, options, context, /*loops=*/1,
                                 [&](const Problem& seen, Judge& judge, Outcome& found) {
                                   return PiperSearch(seen, options, context, judge).Run(found);
                                 }));
    if (outcome.strategy && HasTensorParallelConfigurations(*problem.graph)) {
      absl::StrAppend(&outcome.reason, outcome.reason.empty() ? "" : "; ",
                      "tensor-parallel configurations of the profile were not used, since a stage "
                      "cannot have them");
    }
    return outcome;
  }
};

}  // namespace

std::unique_ptr<Planner> MakePiperPlanner() { return std::make_unique<PiperPlanner>(); }

}  // namespace stagewright
