#include "planner_service/models/pass_lanes.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stagewright {

PassLanes::PassLanes(std::vector<Unit> units, const std::vector<UnitPass>& passes,
                     std::optional<ReceivePosting> posting)
    : units_(std::move(units)), first_(units_.size() + 1, 0), last_(units_.size(), -1) {
  int32_t devices = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    first_[u + 1] = first_[u] + units_[u].micro_batches;
    devices = std::max(devices, units_[u].device + 1);
  }
  heads_.assign(devices, -1);
  reader_.assign(slots(), -1);
  std::vector<int32_t> tails(devices, -1);
  passes_.reserve(passes.size());
  for (const UnitPass& pass : passes) {
    const auto position = static_cast<int32_t>(passes_.size());
    Placed& placed = passes_.emplace_back(Placed{pass, units_[pass.unit].device});
    if (pass.kind == PassKind::kForward || pass.kind == PassKind::kBackward) {
      placed.slot = SlotOf(pass.unit, pass.micro_batch, pass.kind == PassKind::kBackward);
      reader_[placed.slot] = position;
    }
    int32_t& tail = tails[placed.device];
    (tail < 0 ? heads_[placed.device] : passes_[tail].next) = position;
    tail = position;
    last_[pass.unit] = position;
  }
  FindPosts(posting);
}

void PassLanes::FindPosts(std::optional<ReceivePosting> posting) {
  posts_begin_.assign(passes_.size() + 2, 0);
  std::vector<int32_t> after(passes_.size(), -1);  // By position.
  std::vector<int32_t> positions;
  std::vector<LanePass> lane;
  for (int32_t head : heads_) {
    if (!posting) break;
    positions.clear();
    lane.clear();
    for (int32_t p = head; p >= 0; p = passes_[p].next) {
      positions.push_back(p);
      const Placed& pass = passes_[p];
      lane.push_back(LanePassOf(pass.kind, pass.unit, SlotOf(pass.unit, pass.micro_batch, false)));
    }
    const std::vector<int32_t> index = posting->PostAfter(lane);
    for (size_t i = 0; i < index.size(); ++i) {
      if (index[i] >= 0) after[positions[i]] = positions[index[i]];
    }
  }
  const auto counts = posts_begin_.begin() + 1;
  for (size_t p = 0; p < passes_.size(); ++p) {
    if (passes_[p].slot >= 0) ++posts_begin_[after[p] + 2];
  }
  std::partial_sum(counts, posts_begin_.end(), counts);
  posts_.resize(posts_begin_.back());
  std::vector<int32_t> next(posts_begin_);
  for (size_t p = 0; p < passes_.size(); ++p) {
    if (passes_[p].slot >= 0) posts_[next[after[p] + 1]++] = static_cast<int32_t>(p);
  }
}

}  // namespace stagewright
