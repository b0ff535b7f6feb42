// The passes of a step, each device's in the order in which it runs them, and when the receives of
// each are posted.
//
// A unit is what runs its passes one micro-batch after the other: a stage, one replica of a stage,
// or one slice of a model. Several units may share a device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/lowering/receive_posting.h"

namespace stagewright {

enum class PassKind : uint8_t {
  kForward,    // Reads activations.
  kBackward,   // Whole or the input half: reads gradients.
  kRecompute,  // The forward pass again, right before a backward pass: reads no message.
  kWeight,     // The weight half of a backward pass: reads no message.
};
inline constexpr size_t kPassKinds = 4;

// The pass as the rule of posting sees it; `work` numbers its unit and micro-batch.
inline LanePass LanePassOf(PassKind kind, int32_t unit, int64_t work) {
  if (kind == PassKind::kForward) return {LanePass::Kind::kForward, unit, work};
  if (kind == PassKind::kBackward) return {LanePass::Kind::kGradients, unit, work};
  return {LanePass::Kind::kOther, unit, work};
}

struct UnitPass {
  int32_t unit = 0;
  int32_t micro_batch = 0;
  PassKind kind = PassKind::kForward;
  friend bool operator==(const UnitPass&, const UnitPass&) = default;
};

// Positions count passes in the order in which they were given. Slots number what passes read:
// activations and gradients, by unit and micro-batch.
class PassLanes {
 public:
  struct Unit {
    int32_t device = 0;
    int32_t micro_batches = 1;
    int64_t samples = 1;  // In a micro-batch; 1 where those of all units are equal.
  };
  struct Placed : UnitPass {
    int32_t device = 0;
    int32_t slot = -1;  // What it reads; -1: nothing, as it recomputes or is a weight half.
    int32_t next = -1;  // Position of the pass after it on its device; -1: it is the last.
  };

  // `passes` of one device follow each other in the order in which it runs them; each forward and
  // backward pass of a unit is there at most once. Without `posting`, receives are posted at once.
  // O(passes * posting->ahead).
  PassLanes(std::vector<Unit> units, const std::vector<UnitPass>& passes,
            std::optional<ReceivePosting> posting);

  const std::vector<Unit>& units() const { return units_; }
  const std::vector<Placed>& passes() const { return passes_; }
  int32_t slots() const { return 2 * first_.back(); }
  int32_t devices() const { return static_cast<int32_t>(heads_.size()); }
  // Position of a device's first pass; -1: it has none.
  int32_t head(int32_t device) const { return heads_[device]; }
  // Position of a unit's last pass; -1: it has none.
  int32_t last(int32_t unit) const { return last_[unit]; }

  int32_t SlotOf(int32_t unit, int32_t micro_batch, bool backward) const {
    return (backward ? first_.back() : 0) + first_[unit] + micro_batch;
  }
  // Position of the pass that reads a slot; -1: there is none.
  int32_t reader(int32_t slot) const { return reader_[slot]; }

  // Positions of the passes whose receives are posted when the pass at `position` ends; at -1, at
  // once.
  std::span<const int32_t> PostedBy(int32_t position) const {
    return {posts_.data() + posts_begin_[position + 1], posts_.data() + posts_begin_[position + 2]};
  }

 private:
  void FindPosts(std::optional<ReceivePosting> posting);

  std::vector<Unit> units_;
  std::vector<Placed> passes_;
  std::vector<int32_t> first_;        // By unit, and the end: its first activation slot.
  std::vector<int32_t> heads_;        // By device.
  std::vector<int32_t> last_;         // By unit.
  std::vector<int32_t> reader_;       // By slot.
  std::vector<int32_t> posts_begin_;  // By position + 1, and the end.
  std::vector<int32_t> posts_;
};

}  // namespace stagewright
