// When a receive is posted: one rule for Lower, which writes it into programs, and for every search
// that predicts what Lower will write.
//
// The receives of a pass are posted when the pass before it of the same stage and direction starts:
// a slow link is then busy with the next message while others' passes run, too, and a device holds
// for each stage and direction at most that message beyond those in use. They are posted at most
// `ahead` passes before the one that reads them, and a gradient's not before the forward pass that
// it answers has ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace stagewright {

// A pass in the compute lane of a device, as far as it decides when receives are posted.
struct LanePass {
  enum class Kind : uint8_t {
    kForward,    // Reads activations.
    kGradients,  // A backward pass or its input half: reads gradients.
    kOther,      // Recomputation or a weight half: reads no message.
  };
  Kind kind = Kind::kOther;
  int32_t stage = 0;  // By any number that stages of the device do not share.
  int64_t work = 0;  // A number that a forward pass and the pass over its gradients have in common.
};

struct ReceivePosting {
  // How many passes before its reader a receive may be posted; at least 1.
  int32_t ahead = 16;

  // How many passes before `reader` the pass lies at whose end its receives are posted, counted
  // back from 1. `passes` passes come before the reader, `before(i)` being the i-th of them counted
  // back; the result is `passes + 1` if the receives are posted at once. O(ahead).
  template <typename Before>
  int32_t PassesBack(const LanePass& reader, int32_t passes, const Before& before) const {
    for (int32_t back = 1; back < ahead && back <= passes; ++back) {
      const LanePass other = before(back);
      if (other.kind == reader.kind && other.stage == reader.stage) return back + 1;
      if (reader.kind == LanePass::Kind::kGradients && other.kind == LanePass::Kind::kForward &&
          other.work == reader.work)
        return back;
    }
    return std::min(ahead, passes + 1);
  }

  // By pass of a lane: the index of the pass at whose end its receives are posted; -1: at once, or
  // it has none. O(passes * ahead).
  std::vector<int32_t> PostAfter(std::span<const LanePass> lane) const;
};

}  // namespace stagewright
