#include "planner_service/records/plans_ahead.h"

#include <algorithm>
#include <utility>

#include "common/artifacts/content_hash.h"
#include "common/wire/topology_proto.h"

namespace stagewright {
namespace {

OperatorProfile MeasuredApart(OperatorProfile profile) {
  for (auto& [device, operators] : profile.devices)
    std::erase_if(operators, [](const auto& entry) { return !entry.second.job.empty(); });
  return profile;
}

// Messages without maps: equal ones have equal bytes in one process.
std::string BytesWithoutNames(const Cluster& cluster) {
  v1::Cluster proto = ToProto(cluster);
  proto.clear_name();
  for (v1::Device& device : *proto.mutable_devices()) device.clear_name();
  for (v1::Link& link : *proto.mutable_links()) link.clear_name();
  return proto.SerializeAsString();
}

}  // namespace

PlanSource::PlanSource(const Cluster& cluster, const OperatorProfile& profile)
    : digest_(ContentHash(BytesWithoutNames(cluster)) +
              ContentHash(OperatorProfileToJson(MeasuredApart(profile)))) {}

std::shared_ptr<const JobPlan> PlansAhead::Find(const PlanSource& source) const {
  const auto it = std::find_if(kept_.begin(), kept_.end(),
                               [&](const Kept& kept) { return kept.source == source; });
  return it == kept_.end() ? nullptr : it->plan;
}

void PlansAhead::Keep(PlanSource source, std::shared_ptr<const JobPlan> plan) {
  std::erase_if(kept_, [&](const Kept& kept) { return kept.source == source; });
  kept_.push_back({std::move(source), std::move(plan)});
}

bool PlansAhead::Lacks(const PlanSource& source) {
  for (Kept& kept : kept_) {
    if (!(kept.source == source)) continue;
    kept.needed = true;
    return false;
  }
  return kept_.size() < kMost;
}

void PlansAhead::EndRound() {
  std::erase_if(kept_, [](const Kept& kept) { return !kept.needed; });
  for (Kept& kept : kept_) kept.needed = false;
  looked_at.clear();
}

}  // namespace stagewright
