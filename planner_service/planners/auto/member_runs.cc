#include "planner_service/planners/auto/member_runs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/planner/whole_batch.h"
#include "planner_service/planners/auto/effort.h"

namespace stagewright {
namespace {

// Memories that a member runs with again, over what its first answer needs.
constexpr double kMemories[] = {1.6, 1.25, 0.95, 0.75, 0.55, 0.4};
// Parts of the work that is left which may go to all members, and to one that runs again.
constexpr double kMembers = 0.45;
constexpr double kAgain = 0.4;

Cluster WithMemory(const Cluster& cluster, Bytes memory) {
  ClusterData data = cluster.data();
  for (Device& device : data.devices) device.memory = std::min(device.memory, memory);
  return *Cluster::Create(std::move(data));
}

}  // namespace

MemberRuns::MemberRuns(const Problem& problem, const PlanOptions& options,
                       const SearchContext& context, Incumbents& incumbents)
    : problem_(problem),
      options_(options),
      context_(context),
      incumbents_(incumbents),
      members_(AutoMembers(problem, options)),
      work_(context, PartOfWork(context, kMembers)) {
  none_.termination = Termination::kLimit;
}

absl::Status MemberRuns::RunQuick(Outcome& outcome) {
  while (next_ < members_.size() && members_[next_].quick && !work_.Expired())
    RETURN_IF_ERROR(Run(members_[next_++], outcome));
  return absl::OkStatus();
}

absl::Status MemberRuns::RunAll(Outcome& outcome) {
  while (next_ < members_.size() && !work_.Expired())
    RETURN_IF_ERROR(Run(members_[next_++], outcome));
  return absl::OkStatus();
}

absl::Status MemberRuns::Run(const AutoMember& member, Outcome& outcome) {
  const SearchContext part(work_, PartOfWork(work_, member.most_work));
  part.Spend(work::kDevicePair * int64_t{problem_.cluster->size()} * problem_.cluster->size());
  SearchContext own(part, member.most_effort);
  // The very first plan is passed on at once: a member may look at many before it answers.
  own.on_improvement = [&](const Strategy& strategy) {
    if (!told_ && context_.on_improvement) context_.on_improvement(strategy);
    told_ = true;
  };
  absl::StatusOr<Outcome> answer = SolveOnWholeBatches(*member.planner, problem_, options_, own);
  if (!answer.ok()) {  // Its conformance suite says so, too; the others go on.
    none_.reason = absl::StrCat(member.planner->name(), ": ", answer.status().message());
    return absl::OkStatus();
  }
  outcome.states += answer->states;
  outcome.candidates += answer->candidates;
  if (!answer->strategy.has_value()) {
    if (none_.termination != Termination::kInfeasible) none_ = *std::move(answer);
    return absl::OkStatus();
  }
  std::optional<Verdict> known;
  if (answer->iteration_time && !member.several_memories) known = {answer->iteration_time};
  ASSIGN_OR_RETURN(const Verdict verdict,
                   incumbents_.Consider(*answer->strategy, std::move(known)));
  found_.push_back(*std::move(answer->strategy));
  if (member.several_memories && verdict.time.has_value())
    return RunOnLess(member, own, verdict.peak);
  return absl::OkStatus();
}

// A member's answers on devices of other memories than its first one needed, `peak`.
absl::Status MemberRuns::RunOnLess(const AutoMember& member, const SearchContext& whole,
                                   Bytes peak) {
  const SearchContext context(whole, PartOfWork(whole, kAgain));
  Bytes most = 0;
  for (const Device& device : problem_.cluster->devices()) most = std::max(most, device.memory);
  for (const double share : kMemories) {
    const auto memory = static_cast<Bytes>(share * static_cast<double>(peak));
    if (context.Expired()) break;
    if (memory >= most || memory < 1) continue;
    const Cluster less = WithMemory(*problem_.cluster, memory);
    Problem seen = problem_;
    seen.cluster = &less;
    SearchContext own(context, member.most_effort);
    ASSIGN_OR_RETURN(Outcome answer, SolveOnWholeBatches(*member.planner, seen, options_, own));
    if (!answer.strategy.has_value()) break;
    RETURN_IF_ERROR(incumbents_.Consider(*answer.strategy).status());
    found_.push_back(*std::move(answer.strategy));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
