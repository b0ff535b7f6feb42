#include "planner_service/drift/stragglers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "common/program/action.h"

namespace stagewright {
namespace {

// What one device does in a step.
struct Work {
  Nanos busy = 0;
  Nanos predicted = 0;
  std::map<StageId, Nanos> stages;  // Busy time.

  double Ratio() const { return static_cast<double>(busy) / static_cast<double>(predicted); }
};

std::map<DeviceId, Work> WorkOf(const std::vector<ActionTimes>& actions) {
  std::map<DeviceId, Work> all;
  for (const ActionTimes& times : actions) {
    if (!IsCompute(times.group.kind)) continue;
    Work& work = all[times.group.device];
    work.busy += times.measured * times.count;
    work.predicted += times.predicted * times.count;
    work.stages[times.group.stage] += times.measured * times.count;
  }
  return all;
}

bool AreReplicas(const Work& a, const Work& b) {
  const auto difference = static_cast<double>(a.predicted - b.predicted);
  return std::abs(difference) <= kAlikePrediction * static_cast<double>(a.predicted) &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

// The smaller of two in the middle. REQUIRES: there is a value.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

StageId LongestStage(const Work& work) {
  return std::max_element(work.stages.begin(), work.stages.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

std::vector<DevicePace> PacesOf(const std::vector<ActionTimes>& actions, Nanos predicted_step) {
  std::map<DeviceId, Work> all = WorkOf(actions);
  const double least = kLeastBusyShare * static_cast<double>(predicted_step);
  std::erase_if(all, [&](const auto& entry) {
    const Work& work = entry.second;
    return work.predicted <= 0 || work.busy <= 0 || static_cast<double>(work.predicted) < least;
  });
  if (all.size() < 2) return {};
  std::vector<double> ratios;
  for (const auto& [device, work] : all) ratios.push_back(work.Ratio());
  const double usual = Median(ratios);
  std::vector<DevicePace> paces;
  for (const auto& [device, work] : all) {
    std::vector<double> replicas;
    for (const auto& [other, their] : all)
      if (other != device && AreReplicas(work, their)) replicas.push_back(their.Ratio());
    const double like = replicas.empty() ? usual : Median(replicas);
    const auto expected = static_cast<Nanos>(static_cast<double>(work.predicted) * like);
    paces.push_back({device, LongestStage(work), work.busy, std::max(expected, Nanos(1)),
                     replicas.empty() ? kSlowByPrediction : kSlowBesideReplicas});
  }
  return paces;
}

Stragglers After(const Stragglers& before, const std::vector<DevicePace>& paces,
                 int64_t first_step) {
  Stragglers after;
  for (const auto& [device, slow] : before.named) {
    const bool seen =
        std::any_of(paces.begin(), paces.end(),
                    [&, wanted = device](const auto& pace) { return pace.device == wanted; });
    if (!seen) after.named[device] = slow;
  }
  for (const DevicePace& pace : paces) {
    const auto named = before.named.find(pace.device);
    if (named != before.named.end()) {
      const bool over = pace.Times() < 1 + kStillSlow * (pace.slow - 1);
      if (!over) after.named[pace.device] = {pace, named->second.since_step};
      continue;
    }
    if (pace.Times() < pace.slow) continue;
    const auto suspect = before.suspects.find(pace.device);
    if (suspect == before.suspects.end()) {
      after.suspects[pace.device] = {pace, first_step};
    } else {
      after.named[pace.device] = {pace, suspect->second.since_step};
    }
  }
  return after;
}

std::string StragglerText(const SlowDevice& straggler, const std::string& device,
                          int64_t last_step) {
  const DevicePace& pace = straggler.pace;
  return absl::StrFormat(
      "device %s takes %.1f times as long as its like (steps %d to %d): stage %d, busy for %s of a "
      "step instead of %s",
      device, pace.Times(), straggler.since_step, last_step, pace.stage.value(),
      FormatDuration(pace.busy), FormatDuration(pace.expected));
}

}  // namespace stagewright
