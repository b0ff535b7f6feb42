#include "planner_service/simulator/link_shares.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace stagewright {

LinkShares::LinkShares(std::vector<double> rates, int32_t num_flows) : flows_(num_flows) {
  links_.resize(rates.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    CHECK(rates[i] > 0);
    links_[i].rate = rates[i];
  }
}

void LinkShares::Touch(std::span<const int32_t> links) {
  for (int32_t link : links) {
    if (links_[link].dirty) continue;
    links_[link].dirty = true;
    dirty_.push_back(link);
  }
}

void LinkShares::Begin(int32_t flow, std::span<const int32_t> links, Bytes bytes) {
  Flow& f = flows_[flow];
  CHECK(f.links.empty() && !links.empty() && bytes > 0);
  f.links = links;
  f.remaining = static_cast<double>(bytes);
  f.rate = 0;
  for (int32_t link : links) links_[link].flows.push_back(flow);
  Touch(links);
}

void LinkShares::End(int32_t flow) {
  Flow& f = flows_[flow];
  CHECK(!f.links.empty());
  for (int32_t link : f.links) {
    std::vector<int32_t>& flows = links_[link].flows;
    auto it = std::find(flows.begin(), flows.end(), flow);
    *it = flows.back();
    flows.pop_back();
  }
  Touch(f.links);
  f.links = {};
  ++f.version;
}

void LinkShares::Refresh(int32_t flow, Nanos now) {
  Flow& f = flows_[flow];
  double rate = std::numeric_limits<double>::infinity();
  for (int32_t link : f.links) {
    rate = std::min(rate, links_[link].rate / static_cast<double>(links_[link].flows.size()));
  }
  // An unchanged rate keeps its finish: no rounding creeps in, and the caller's queue stays small.
  if (rate == f.rate) return;
  if (f.rate > 0) {
    f.remaining = std::max(0.0, f.remaining - f.rate * static_cast<double>(now - f.updated) * 1e-9);
  }
  f.rate = rate;
  f.updated = now;
  changes_.push_back(
      {flow, ++f.version, now + static_cast<Nanos>(std::ceil(f.remaining / rate * 1e9))});
}

std::span<const LinkShares::Change> LinkShares::Settle(Nanos now) {
  changes_.clear();
  for (int32_t link : dirty_) {
    links_[link].dirty = false;
    for (int32_t flow : links_[link].flows) {
      if (flows_[flow].marked) continue;
      flows_[flow].marked = true;
      affected_.push_back(flow);
    }
  }
  dirty_.clear();
  for (int32_t flow : affected_) {
    flows_[flow].marked = false;
    Refresh(flow, now);
  }
  affected_.clear();
  return changes_;
}

}  // namespace stagewright
