// Pipeline planning by deep reinforcement learning.
//
// Problem: cut the operator graph into at most as many partitions as there are devices, and place a
// partition on every device (several devices with one partition are its replicas), so that the time
// of a mini-batch is short. The time is only known by trying: by simulation, or on workers.
//
//   paper              here
//   H_v                Agent::Encode, a row per group of operators
//   G_k, V_c           Walk: partitions_, candidates_
//   T                  Temperature, in agent.cc
//   S_cut, S_v         Agent::Sampling::Options, Agent::Replay::Scores
//   r_ij               Rewards: seconds of placement j of scheme i
//   R_ij = -ln r_ij    Trial::reward
//
// Method: per step, kSchemes partition schemes are drawn from the policy by algorithm 1 and
// kPlacements placements of each. A scheme's reward is the mean of its placements'; the advantage
// of either is by how many standard deviations of the step it is better than the step's mean, so
// that the last percent still teaches. The policy follows them by PPO (Schulman et al. 2017):
// kEpochs ascents of min(q A, clip(q, 1 - e, 1 + e) A) plus a bonus on entropy that fades, q being
// the ratio of new to old probability of each decision.
//
// Complexity: a step takes O(groups * candidates * width^2) for the network and at most kSchemes *
// kPlacements * 12 simulations.
//
// Deviations from the paper:
//  1. Groups. Operators are joined to at most kMostGroups groups first (grouping.h), which bounds
//     the walk; the time of a group is a feature, too.
//  2. Cut scores. The cut score is that of the partition as it stands, and the encoded summary of a
//     partition replaces the one before it when it is cut; a partition is never cut while it is
//     empty.
//  3. Mean summaries. Summaries are divided by the number of groups, so that scores do not grow
//     with the graph.
//  4. Temperature. T is ln(groups / partitions), so that an untrained policy cuts evenly over a
//     chain.
//  5. Sizes are not learnt. The best of a few micro-batch sizes, with recomputation where it must
//     be, is taken per placement.
//  6. Redraws. A placement that leaves a partition without a device is drawn again, kRedraws times
//     at most; each such draw is paid kPenalty less than the worst placement so far.
//  7. Its best. The best try so far is learnt from again in every step, as in self-imitation (Oh et
//     al., ICML 2018): drawn once in hundreds of tries, it would be forgotten, and the policy ended
//     a fifth slower on GNMT.
//  8. One partition first. One device and all devices with one partition are measured first, so
//     that a deadline always leaves an answer.
//
// Reference: Pipeline Parallelism Optimization with Deep Reinforcement Learning, sections 3
// and 4.2.
#include "planner_service/planners/drl_pp/drl_pp.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "planner_service/planners/drl_pp/agent.h"
#include "planner_service/planners/drl_pp/reward.h"
#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

constexpr int32_t kMostGroups = 24;
constexpr int kSchemes = 4;
constexpr int kPlacements = 3;
constexpr int kRedraws = 8;
constexpr int kEpochs = 2;
constexpr double kClip = 0.2;
constexpr double kLearningRate = 1e-3;
constexpr double kEntropyBonus = 0.03;
constexpr double kLeastDeviation = 1e-3;  // Smaller differences between rewards are noise.
constexpr double kPenalty = 1.0;

struct Trial {
  size_t scheme;
  Placement placement;
  double reward;
};

// By how many standard deviations each is above the mean.
std::vector<double> Standardised(std::vector<double> rewards) {
  const auto n = static_cast<double>(rewards.size());
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / n;
  double square = 0;
  for (const double reward : rewards) square += (reward - mean) * (reward - mean) / n;
  const double deviation = std::sqrt(square) + kLeastDeviation;
  for (double& reward : rewards) reward = (reward - mean) / deviation;
  return rewards;
}

std::vector<double> Numbers(const torch::Tensor& tensor) {
  const torch::Tensor row = tensor.to(torch::kDouble).contiguous();
  return {row.data_ptr<double>(), row.data_ptr<double>() + row.numel()};
}

class DrlPpSearch {
 public:
  DrlPpSearch(const Problem& problem, const PlanOptions& options, const DrlPpConfig& config,
              SearchContext& context)
      : problem_(problem),
        options_(options),
        config_(config),
        context_(context),
        grouping_(GroupOperators(problem.operators->dag(), OperatorTimes(problem), kMostGroups)),
        rewards_(problem, options, context,
                 context.measure ? context.measure(problem) : SimulatedSeconds(problem)),
        random_(options.seed),
        agent_(options.seed) {
    const int32_t most = options.num_stages > 0 ? options.num_stages : options.max_stages;
    most_partitions_ =
        std::min(problem.cluster->size(), static_cast<int32_t>(grouping_.dag.size()));
    if (most > 0) most_partitions_ = std::min(most_partitions_, most);
  }

  absl::StatusOr<Outcome> Solve() {
    // The network is small: threads would wait for each other longer than they compute, and sums
    // depend on their number.
    at::set_num_threads(1);
    if (!config_.load_policy.empty()) RETURN_IF_ERROR(agent_.LoadFrom(config_.load_policy));
    MeasureOnePartition();
    Train();
    if (!config_.save_policy.empty()) RETURN_IF_ERROR(agent_.SaveTo(config_.save_policy));
    return Conclude();
  }

 private:
  void MeasureOnePartition() {
    std::vector<int32_t> all(problem_.operators->size());
    for (size_t v = 0; v < all.size(); ++v) all[v] = static_cast<int32_t>(v);
    Draft draft;
    draft.stages.push_back({all, {0}, false});
    Note(std::move(draft));
    if (options_.allow_replicas && problem_.cluster->size() > 1 && !context_.Expired()) {
      Draft replicated;
      replicated.stages.push_back({std::move(all), {}, false});
      for (int32_t d = 0; d < problem_.cluster->size(); ++d) {
        replicated.stages[0].devices.push_back(d);
      }
      Note(std::move(replicated));
    }
  }

  void Train() {
    if (problem_.cluster->size() == 1) return;
    const GroupFeatures made = MakeGroupFeatures(problem_, grouping_);
    const int64_t n = grouping_.dag.size();
    features_ = torch::tensor(made.features).view({n, kNodeFeatures});
    adjacency_ = torch::tensor(made.adjacency).view({n, n});
    torch::optim::Adam optimizer(agent_.parameters(), torch::optim::AdamOptions(kLearningRate));
    for (int32_t step = 0; step < config_.steps && !context_.Expired(); ++step) {
      if (step - last_improvement_ > config_.patience) break;
      step_ = step;
      std::vector<Scheme> schemes;
      std::vector<Trial> trials;
      Sample(schemes, trials);
      if (context_.Expired()) break;
      AddBest(schemes, trials);
      Learn(optimizer, schemes, trials,
            kEntropyBonus * (1 - static_cast<double>(step) / config_.steps));
    }
  }

  void Sample(std::vector<Scheme>& schemes, std::vector<Trial>& trials) {
    torch::NoGradGuard no_grad;
    const torch::Tensor nodes = agent_.Encode(features_, adjacency_);
    for (int i = 0; i < kSchemes && !context_.Expired(); ++i) {
      schemes.push_back(agent_.SampleScheme(nodes, grouping_.dag, most_partitions_, random_));
      ++states_;
      const torch::Tensor logits =
          agent_.PlacementLogits(nodes, schemes.back(), problem_.cluster->size());
      for (int j = 0; j < kPlacements && !context_.Expired(); ++j) {
        for (int draw = 0; draw <= kRedraws; ++draw) {
          Placement placement = Agent::SamplePlacement(logits, random_);
          const bool covers = placement.Covers(schemes.back().partitions.size());
          const double reward = covers ? RewardOf(schemes.back(), placement) : Worst() - kPenalty;
          trials.push_back({schemes.size() - 1, std::move(placement), reward});
          if (covers) break;
        }
      }
    }
  }

  // The best try so far, as the present policy sees it.
  void AddBest(std::vector<Scheme>& schemes, std::vector<Trial>& trials) {
    torch::NoGradGuard no_grad;
    for (const Trial& trial : trials) {
      const Scheme& scheme = schemes[trial.scheme];
      if (!trial.placement.Covers(scheme.partitions.size())) continue;
      if (!best_trial_.has_value() || trial.reward > best_trial_->reward) {
        best_scheme_ = scheme;
        best_trial_ = trial;
      }
    }
    if (!best_trial_.has_value()) return;
    const torch::Tensor nodes = agent_.Encode(features_, adjacency_);
    best_scheme_.log_probabilities =
        Numbers(agent_.JudgeSchemes(nodes, grouping_.dag, most_partitions_, {best_scheme_})
                    .front()
                    .log_probabilities);
    best_trial_->placement.log_probabilities =
        Numbers(ChosenOf(agent_.PlacementLogits(nodes, best_scheme_, problem_.cluster->size()),
                         best_trial_->placement));
    best_trial_->scheme = schemes.size();
    schemes.push_back(best_scheme_);
    trials.push_back(*best_trial_);
  }

  double Worst() const { return worst_.value_or(0); }

  double RewardOf(const Scheme& scheme, const Placement& placement) {
    Draft draft;
    draft.kind = options_.sequential ? StrategyKind::kSequential : StrategyKind::kGraph;
    for (size_t p = 0; p < scheme.partitions.size(); ++p) {
      DraftStage stage;
      for (int32_t group : scheme.partitions[p]) {
        const std::vector<int32_t>& operators = grouping_.groups[group];
        stage.operators.insert(stage.operators.end(), operators.begin(), operators.end());
      }
      std::sort(stage.operators.begin(), stage.operators.end());
      for (size_t d = 0; d < placement.partition_of.size(); ++d) {
        if (placement.partition_of[d] == static_cast<int32_t>(p)) {
          stage.devices.push_back(static_cast<int32_t>(d));
        }
      }
      if (!options_.allow_replicas) stage.devices.resize(1);
      draft.stages.push_back(std::move(stage));
    }
    const Measured* measured = Note(std::move(draft));
    if (measured == nullptr) return Worst() - kPenalty;
    const double reward = -std::log(std::max(measured->seconds, 1e-12));
    worst_ = std::min(worst_.value_or(reward), reward);
    return reward;
  }

  // Measures a draft and keeps it if it is the best that the options allow.
  const Measured* Note(Draft draft) {
    const auto stages = static_cast<int32_t>(draft.stages.size());
    if (options_.num_stages > 0 && stages != options_.num_stages) return nullptr;
    if (draft.kind == StrategyKind::kGraph && !SortStages(problem_.operators->dag(), draft)) {
      return nullptr;
    }
    const Measured* measured = rewards_.Of(std::move(draft));
    if (measured != nullptr && (!best_.has_value() || measured->seconds < best_->seconds)) {
      best_ = *measured;
      last_improvement_ = step_;
      if (context_.on_improvement) context_.on_improvement(best_->strategy);
    }
    return measured;
  }

  struct Advantages {
    std::vector<std::optional<double>> schemes;  // None: no placement of it covers its partitions.
    std::vector<double> trials;
  };

  static Advantages AdvantagesOf(const std::vector<Scheme>& schemes,
                                 const std::vector<Trial>& trials) {
    Advantages advantages;
    std::vector<double> rewards, sums(schemes.size(), 0), counts(schemes.size(), 0);
    for (const Trial& trial : trials) {
      rewards.push_back(trial.reward);
      if (!trial.placement.Covers(schemes[trial.scheme].partitions.size())) continue;
      sums[trial.scheme] += trial.reward;
      counts[trial.scheme] += 1;
    }
    advantages.trials = Standardised(std::move(rewards));
    std::vector<double> means;
    for (size_t i = 0; i < schemes.size(); ++i) {
      if (counts[i] > 0) means.push_back(sums[i] / counts[i]);
    }
    means = Standardised(std::move(means));
    auto mean = means.begin();
    for (const double count : counts)
      advantages.schemes.push_back(count > 0 ? std::optional(*mean++) : std::nullopt);
    return advantages;
  }

  void Learn(torch::optim::Adam& optimizer, const std::vector<Scheme>& schemes,
             const std::vector<Trial>& trials, double entropy_bonus) {
    const Advantages advantages = AdvantagesOf(schemes, trials);
    for (int epoch = 0; epoch < kEpochs && !context_.Expired(); ++epoch) {
      const torch::Tensor nodes = agent_.Encode(features_, adjacency_);
      torch::Tensor loss = torch::zeros({});
      const auto add = [&](const Judged& now, const std::vector<double>& before, double gain,
                           double weight) {
        if (now.log_probabilities.numel() == 0) return;
        const torch::Tensor old = torch::tensor(before, torch::kFloat32);
        const torch::Tensor ratio = (now.log_probabilities - old).exp();
        const torch::Tensor clipped = ratio.clamp(1 - kClip, 1 + kClip);
        loss = loss - weight * torch::min(ratio * gain, clipped * gain).sum() -
               weight * entropy_bonus * now.entropy;
      };
      const std::vector<Judged> judged =
          agent_.JudgeSchemes(nodes, grouping_.dag, most_partitions_, schemes);
      std::vector<torch::Tensor> logits, entropies;
      for (size_t i = 0; i < schemes.size(); ++i) {
        logits.push_back(agent_.PlacementLogits(nodes, schemes[i], problem_.cluster->size()));
        entropies.push_back(MeanEntropy(logits.back()));
        if (!advantages.schemes[i].has_value()) continue;
        add(judged[i], schemes[i].log_probabilities, *advantages.schemes[i],
            1.0 / static_cast<double>(schemes.size()));
      }
      for (size_t i = 0; i < trials.size(); ++i) {
        const size_t scheme = trials[i].scheme;
        add({ChosenOf(logits[scheme], trials[i].placement), entropies[scheme]},
            trials[i].placement.log_probabilities, advantages.trials[i],
            1.0 / static_cast<double>(trials.size()));
      }
      if (context_.Expired()) return;
      optimizer.zero_grad();
      if (!loss.requires_grad()) return;
      loss.backward();
      torch::nn::utils::clip_grad_norm_(agent_.parameters(), 1.0);
      optimizer.step();
    }
  }

  absl::StatusOr<Outcome> Conclude() {
    Outcome outcome;
    outcome.states = states_;
    outcome.candidates = rewards_.measured();
    if (best_.has_value()) {
      outcome.termination = Termination::kFeasible;
      outcome.strategy = std::move(best_->strategy);
      return outcome;
    }
    Outcome none = NoneFound("drl_pp", problem_, options_,
                             {"the placements that were tried", "", rewards_.last_error()});
    outcome.termination = none.termination;
    outcome.reason = std::move(none.reason);
    return outcome;
  }

  const Problem& problem_;
  const PlanOptions& options_;
  const DrlPpConfig& config_;
  SearchContext& context_;
  Grouping grouping_;
  Rewards rewards_;
  RandomEngine random_;
  Agent agent_;
  int32_t most_partitions_ = 1;
  torch::Tensor features_, adjacency_;
  std::optional<Measured> best_;
  std::optional<double> worst_;  // Reward.
  Scheme best_scheme_;           // Best of those that were drawn.
  std::optional<Trial> best_trial_;
  int32_t step_ = 0, last_improvement_ = 0;
  int64_t states_ = 0;
};

class LearningDrlPp : public DrlPp {
 public:
  explicit LearningDrlPp(DrlPpConfig config) : config_(std::move(config)) {}
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return DrlPpSearch(problem, options, config_, context).Solve();
  }

 private:
  DrlPpConfig config_;
};

}  // namespace

std::unique_ptr<Planner> MakeDrlPpPlanner(DrlPpConfig config) {
  return std::make_unique<LearningDrlPp>(std::move(config));
}

}  // namespace stagewright
