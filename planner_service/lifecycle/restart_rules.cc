#include "planner_service/lifecycle/restart_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/topology/cluster.h"

namespace stagewright {
namespace {

constexpr auto kMost = static_cast<size_t>(Cluster::kMostDevices);

// As many as its runs before had, as far as that is known.
size_t DevicesBefore(const JobRecord& record) {
  return static_cast<size_t>(std::max(record.job.most_devices, record.job.request->num_devices));
}

// `least` is what it needs, as far as is known.
DeviceShare AfterLoss(const JobRecord& record, size_t least) {
  const size_t before = DevicesBefore(record);
  // What its plan had no use for it gave back; others may have it by now.
  const size_t had =
      record.job.most_devices > 0 ? static_cast<size_t>(record.job.most_devices) : before;
  const bool shrinks = record.job.request->on_loss == LossPolicy::kShrink;
  least = std::max({least, shrinks ? 0 : had, size_t{1}});
  return {least, std::max(least, before == 0 ? kMost : before)};
}

}  // namespace

bool MayBeLoss(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

bool RestartsAtAll(const Job& job) {
  return job.request->on_loss != LossPolicy::kFail && job.request->max_restarts > 0;
}

bool MayRestart(const Job& job) {
  return RestartsAtAll(job) && job.restarts < job.request->max_restarts;
}

bool GoesOn(const Job& job) {
  return job.restarts > 0 || job.replans > 0 || !job.resume_from.empty();
}

DeviceShare ShareOf(const JobRecord& record) {
  const JobRequest& request = *record.job.request;
  if (const size_t named = request.named_devices.size(); named > 0) return {named, named};
  const auto asked = static_cast<size_t>(request.num_devices);
  if (!GoesOn(record.job)) return asked == 0 ? DeviceShare{1, kMost} : DeviceShare{asked, asked};
  const size_t before = DevicesBefore(record);
  const size_t most = before == 0 ? kMost : before;
  // It lost nothing: it gets back what it had, unless it would have taken less in the first place.
  if (record.job.preempted) {
    // Its devices may be those of a plan since then that came to nothing.
    const auto before_that = static_cast<size_t>(record.job.preempted_devices);
    const size_t had = asked == 0 ? 1 : std::clamp(before_that, size_t{1}, asked);
    const size_t needs = std::max(had, record.least_devices);
    return {needs, std::max(needs, asked == 0 ? most : asked)};
  }
  return AfterLoss(record, record.least_devices);
}

DeviceShare ShareAfterLoss(const JobRecord& record) { return AfterLoss(record, /*least=*/0); }

std::string WaitsToStart(const JobRecord& record, const std::vector<std::string>& ending,
                         absl::Time now) {
  if (now < record.start_after) return record.put_back;
  if (!ending.empty() && now < record.settled_by)
    return absl::StrCat(record.put_back, "; waiting for the run to end on ",
                        absl::StrJoin(ending, ", "));
  return "";
}

bool MayWaitForMore(const JobRecord& record, const absl::Status& planned) {
  const bool does_not_fit = absl::IsFailedPrecondition(planned) ||
                            absl::IsInvalidArgument(planned) || absl::IsResourceExhausted(planned);
  return does_not_fit && GoesOn(record.job) && record.job.devices.size() < DevicesBefore(record);
}

}  // namespace stagewright
