#include "planner_service/planners/exact/exact_search.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/check.h"
#include "common/strategy/in_flight.h"
#include "planner_service/search/judge.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

constexpr uint32_t Bit(int32_t stage) { return uint32_t{1} << stage; }

}  // namespace

ExactSearch::ExactSearch(const Problem& problem, const PlanOptions& options, SearchContext& context,
                         Nanos bound)
    : problem_(problem), options_(options), context_(context), bound_(bound), costs_(problem) {
  int32_t most_stages =
      std::min({problem.cluster->size(), problem.operators->size(), kMostExactStages});
  if (options.max_stages > 0) most_stages = std::min(most_stages, options.max_stages);
  const int64_t most_replicas = options.allow_replicas ? problem.mini_batch : 1;
  for (DeviceLayout& layout : Layouts(*problem.cluster, most_stages, most_replicas)) {
    if (options.num_stages > 0 && static_cast<int32_t>(layout.size()) != options.num_stages) {
      continue;
    }
    layouts_.push_back(std::move(layout));
  }
}

absl::Status ExactSearch::Seed(const Strategy& strategy) { return Judge(strategy); }

std::vector<ExactSearch::Job> ExactSearch::Jobs() {
  std::vector<Job> jobs;
  for (int64_t micro_batch : MicroBatchSizes(problem_, options_, Rounding::kDown)) {
    for (size_t i = 0; i < layouts_.size(); ++i) {
      if (context_.Expired()) return jobs;
      const bool fits = std::all_of(layouts_[i].begin(), layouts_[i].end(), [&](const auto& set) {
        return static_cast<int64_t>(set.size()) <= MostReplicas(problem_, options_, micro_batch);
      });
      if (!fits) continue;
      const StageTimes times = MakeStageTimes(costs_, layouts_[i], micro_batch);
      jobs.push_back({i, micro_batch, PartitionTree(costs_, times, context_).Least()});
    }
  }
  // Promising ones first: what they find shows others to be hopeless.
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.least < b.least; });
  return jobs;
}

absl::StatusOr<bool> ExactSearch::Run() {
  const double no_limit = std::numeric_limits<double>::infinity();
  for (const Job& job : Jobs()) {
    if (context_.Expired()) return false;
    if (prune_ && (job.least >= best_time_ || best_time_ <= static_cast<double>(bound_))) break;
    const StageTimes times = MakeStageTimes(costs_, layouts_[job.layout], job.micro_batch);
    PartitionTree tree(costs_, times, context_);
    const double& to_beat = prune_ ? static_cast<const double&>(best_time_) : no_limit;
    const bool done = tree.VisitLeaves(
        to_beat, kMostExactSteps, steps_,
        [&](const std::vector<int32_t>& stage_of) { return Consider(times, stage_of); });
    nodes_ += tree.nodes();
    RETURN_IF_ERROR(error_);
    if (!done && (context_.Expired() || used_up())) return false;
    if (!done) break;  // The bound is reached.
  }
  return !context_.Expired();
}

// One partition with all its schedules. False ends the search.
bool ExactSearch::Consider(const StageTimes& times, const std::vector<int32_t>& stage_of) {
  FillCase(times, stage_of);
  for (int32_t k = 1; k <= std::max(options_.max_k, 1); ++k) {
    if (times.micro_batches % k != 0) continue;
    std::vector<int64_t> before;
    for (int64_t extra :
         {kExtraInFlight[0], kExtraInFlight[1], kExtraInFlight[2], times.micro_batches}) {
      std::vector<int64_t> micro_batches_in_flight = InFlight(times.micro_batch, k);
      for (int64_t& count : micro_batches_in_flight)
        count = std::min(count + extra, times.micro_batches);
      if (micro_batches_in_flight == before) break;
      for (size_t s = 0; s < micro_batches_in_flight.size(); ++s)
        case_.stages[s].micro_batches_in_flight = micro_batches_in_flight[s];
      before = std::move(micro_batches_in_flight);
      case_.k = k;
      TryInFlight(times, {k, extra, 0});
      if (!error_.ok() || context_.Expired()) return false;
      if (prune_ && best_time_ <= static_cast<double>(bound_)) return false;
    }
  }
  return true;
}

// The samples in flight are given; which stages recompute is tried, fewest first.
void ExactSearch::TryInFlight(const StageTimes& times, Choice choice) {
  const std::optional<uint32_t> must = MustRecompute(times);
  if (!must) return;
  const auto all = Bit(times.stages()) - 1;
  std::vector<uint32_t> masks;
  for (uint32_t mask = 0; mask <= all; ++mask) {
    if ((mask & *must) == *must) masks.push_back(mask);
  }
  std::stable_sort(masks.begin(), masks.end(),
                   [](uint32_t a, uint32_t b) { return std::popcount(a) < std::popcount(b); });
  for (uint32_t mask : masks) {
    choice.recompute = mask;
    const absl::Status before = std::exchange(too_large_, absl::OkStatus());
    Try(times, choice);
    const bool too_large = !too_large_.ok();
    if (!too_large) too_large_ = before;
    // Recomputing more only helps where memory asked for it.
    if (!too_large || options_.recompute != RecomputePolicy::kAllowed || !error_.ok()) return;
  }
}

void ExactSearch::Try(const StageTimes& times, const Choice& choice) {
  for (int32_t s = 0; s < times.stages(); ++s) {
    case_.stages[s].recompute = (choice.recompute & Bit(s)) != 0;
  }
  steps_ += kStepsPerSchedule;
  if (prune_ && LeastPipelineTime(*problem_.cluster, times, case_, best_time_) >= best_time_) {
    return;
  }
  error_ = Judge(ToStrategy(times, choice));
}

void ExactSearch::FillCase(const StageTimes& times, const std::vector<int32_t>& stage_of) {
  const int32_t stages = times.stages();
  case_.stages.assign(stages, {});
  fixed_.assign(stages, 0);
  saved_.assign(stages, 0);
  entering_.assign(stages, 0);
  draft_ = Draft();
  draft_.micro_batch = times.micro_batch;
  draft_.stages.resize(stages);
  for (int32_t s = 0; s < stages; ++s) FillStage(times, stage_of, s);
  case_.links = costs_.Exchanges(stage_of, CostView::kLeast);
  for (const CostTable::Exchange& link : case_.links) {
    entering_[link.to] += link.there * times.least_samples[link.to];
  }
  // In topological order; the numbers in the layout stay with the devices.
  CHECK(SortStages(problem_.operators->dag(), draft_));
  layout_stage_.clear();
  for (const DraftStage& stage : draft_.stages) {
    layout_stage_.push_back(stage_of[stage.operators.front()]);
  }
  if (options_.sequential) draft_.kind = StrategyKind::kSequential;
  FindDraftEdges();
}

void ExactSearch::FindDraftEdges() {
  std::vector<int64_t> position(case_.stages.size());
  for (size_t i = 0; i < layout_stage_.size(); ++i)
    position[layout_stage_[i]] = static_cast<int64_t>(i);
  draft_edges_.clear();
  for (const CostTable::Exchange& link : case_.links)
    draft_edges_.push_back({StageId(position[link.from]), StageId(position[link.to])});
  for (size_t i = 1; options_.sequential && i < layout_stage_.size(); ++i) {
    const auto to = static_cast<int64_t>(i);
    draft_edges_.push_back({StageId(to - 1), StageId(to)});
  }
  std::sort(draft_edges_.begin(), draft_edges_.end());
}

void ExactSearch::FillStage(const StageTimes& times, const std::vector<int32_t>& stage_of,
                            int32_t s) {
  PipelineCase::StageCase& stage = case_.stages[s];
  stage.has_backward = false;
  stage.forward.assign(times.replicas[s].size(), 0);
  stage.backward.assign(times.replicas[s].size(), 0);
  Bytes gradients = 0;
  std::vector<DeviceId> devices;
  for (const StageTimes::Replica& replica : times.replicas[s]) {
    devices.push_back(replica.device);
    draft_.stages[s].devices.push_back(replica.device.value());
  }
  for (int32_t op = 0; op < costs_.size(); ++op) {
    if (stage_of[op] != s) continue;
    draft_.stages[s].operators.push_back(op);
    for (size_t r = 0; r < devices.size(); ++r) {
      const OperatorTime& time = (*times.replicas[s][r].times)[op];
      stage.forward[r] += static_cast<double>(time.forward);
      stage.backward[r] += static_cast<double>(time.backward);
    }
    stage.has_backward = stage.has_backward || costs_.held(op).has_backward;
    stage.update += times.rows[s].update[op];
    fixed_[s] += costs_.held(op).least.resident;
    saved_[s] += times.rows[s].saved[op];
    gradients += costs_.held(op).least.gradients;
  }
  stage.update = LeastTail(*std::max_element(stage.backward.begin(), stage.backward.end()),
                           LeastAllReduce(*problem_.cluster, devices, gradients),
                           times.rows[s].Step(stage.update));
}

// Micro-batches in flight of every stage of the layout.
std::vector<int64_t> ExactSearch::InFlight(int64_t micro_batch, int32_t k) const {
  const std::vector<StageRound> rounds(layout_stage_.size(), StageRound{micro_batch, k});
  const std::vector<int64_t> samples = SamplesInFlight(rounds, draft_edges_, problem_.mini_batch);
  std::vector<int64_t> micro_batches_in_flight(case_.stages.size(), 0);
  for (size_t i = 0; i < samples.size(); ++i)
    micro_batches_in_flight[layout_stage_[i]] = samples[i] / micro_batch;
  return micro_batches_in_flight;
}

// The stages that need recomputation to fit, by the least that they hold; nullopt if one does not
// fit even so, or may not recompute.
std::optional<uint32_t> ExactSearch::MustRecompute(const StageTimes& times) const {
  uint32_t must = 0;
  for (int32_t s = 0; s < times.stages(); ++s) {
    const PipelineCase::StageCase& stage = case_.stages[s];
    const bool always = options_.recompute == RecomputePolicy::kAlways;
    if (always) must |= Bit(s);
    if (!stage.has_backward) continue;
    const Bytes inputs = fixed_[s] + stage.micro_batches_in_flight * entering_[s];
    if (inputs + saved_[s] > times.memory[s]) return std::nullopt;
    if (inputs + stage.micro_batches_in_flight * saved_[s] <= times.memory[s] || always) continue;
    if (options_.recompute == RecomputePolicy::kNever) return std::nullopt;
    must |= Bit(s);
  }
  return must;
}

Strategy ExactSearch::ToStrategy(const StageTimes& times, const Choice& choice) const {
  Draft draft = draft_;
  for (size_t i = 0; i < draft.stages.size(); ++i) {
    draft.stages[i].recompute = (choice.recompute & Bit(layout_stage_[i])) != 0;
  }
  Strategy strategy = stagewright::ToStrategy(problem_, draft);
  for (Stage& stage : strategy.stages) stage.schedule.k = choice.k;
  AssignInFlight(strategy);
  for (Stage& stage : strategy.stages) {
    stage.schedule.in_flight =
        std::min(stage.schedule.in_flight + choice.extra * times.micro_batch, problem_.mini_batch);
  }
  return strategy;
}

absl::Status ExactSearch::Judge(Strategy strategy) {
  ++evaluations_;
  steps_ += kStepsPerSimulation;
  // What is there already is the answer when the time is over.
  std::function<bool()> stop;
  if (best_) stop = [this] { return context_.Expired(); };
  ASSIGN_OR_RETURN(const Verdict verdict, VerdictOn(problem_, strategy, std::move(stop)));
  if (!verdict.rejection.ok()) {
    (absl::IsResourceExhausted(verdict.rejection) ? too_large_ : refused_) = verdict.rejection;
  }
  if (!verdict.time) return absl::OkStatus();
  const auto time = static_cast<double>(*verdict.time);
  if (time >= best_time_) return absl::OkStatus();
  best_time_ = time;
  best_ = std::move(strategy);
  if (context_.on_improvement) context_.on_improvement(*best_);
  return absl::OkStatus();
}

}  // namespace stagewright
