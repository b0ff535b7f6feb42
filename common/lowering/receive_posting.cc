#include "common/lowering/receive_posting.h"

namespace stagewright {

std::vector<int32_t> ReceivePosting::PostAfter(std::span<const LanePass> lane) const {
  std::vector<int32_t> after(lane.size(), -1);
  for (int32_t c = 0; c < static_cast<int32_t>(lane.size()); ++c) {
    if (lane[c].kind == LanePass::Kind::kOther) continue;
    after[c] = c - PassesBack(lane[c], c, [&](int32_t back) { return lane[c - back]; });
  }
  return after;
}

}  // namespace stagewright
