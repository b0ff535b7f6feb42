// How work is cut: which share of which micro-batch each replica runs, and which ranges of samples
// flow between shares of neighbouring stages.
//
// A *slot* is one replica's share of one micro-batch of one stage. The slots of a stage, in order
// of micro-batch and replica, tile the mini-batch; so the pieces that flow over an edge of the
// stage graph are the common refinement of two tilings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/sample_range.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/strategy/strategy.h"
#include "common/training/autocast.h"

namespace stagewright {

struct Slot {
  StageId stage;
  int32_t replica = 0;
  SampleRange samples;
};

// The slots of all stages, numbered stage by stage.
class Slots {
 public:
  explicit Slots(const Strategy& strategy);

  int32_t size() const { return static_cast<int32_t>(slots_.size()); }
  const Slot& operator[](int32_t slot) const { return slots_[slot]; }
  int32_t first(StageId stage) const { return first_[stage.index()]; }
  int32_t end(StageId stage) const { return first_[stage.index() + 1]; }
  // The slot of a micro-batch's replica.
  int32_t at(StageId stage, int64_t index, int32_t replica) const {
    return first(stage) + static_cast<int32_t>(index) * replicas_[stage.index()] + replica;
  }

 private:
  std::vector<Slot> slots_;
  std::vector<int32_t> first_;  // By stage, and the end.
  std::vector<int32_t> replicas_;
};

// Samples that flow between two slots: an activation forward and, if the channel has gradients, a
// gradient back.
struct Piece {
  int32_t channel = 0;
  int32_t producer = 0;  // Slots
  int32_t consumer = 0;
  SampleRange samples;
};

struct Channels {
  std::vector<Channel> channels;  // By edge, producing replica, consuming replica.
  std::vector<Piece> pieces;      // By edge, samples; so by producer and by consumer per edge.

  std::span<const int32_t> Into(int32_t slot) const { return Row(into_begin, into, slot); }
  std::span<const int32_t> OutOf(int32_t slot) const { return Row(out_begin, out_of, slot); }

  // Pieces by consuming and by producing slot, ascending.
  std::vector<int32_t> into_begin, into, out_begin, out_of;

 private:
  static std::span<const int32_t> Row(const std::vector<int32_t>& begin,
                                      const std::vector<int32_t>& items, int32_t slot) {
    return {items.data() + begin[slot], items.data() + begin[slot + 1]};
  }
};

// `stages` in the order of the strategy's. INVALID_ARGUMENT names the tensor that has no batch
// dimension and would have to be split. O(nodes + edges of the graph + pieces).
absl::StatusOr<Channels> MakeChannels(const MessageTypes& types, const Strategy& strategy,
                                      const std::vector<ProgramStage>& stages, const Slots& slots,
                                      bool training);

}  // namespace stagewright
