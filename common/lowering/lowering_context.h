// What the devices of one strategy share while Lower writes their programs.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/lowering/channels.h"
#include "common/lowering/lower.h"
#include "common/lowering/reductions.h"
#include "common/lowering/sum_order.h"
#include "common/memory/stage_costs.h"
#include "common/program/program.h"
#include "common/strategy/strategy.h"

namespace stagewright {

struct LoweringContext {
  const Graph& graph;
  const Strategy& strategy;
  const LowerOptions& options;
  Slots slots;
  std::vector<ProgramStage> stages;
  Channels channels;
  std::vector<PlannedReduction> reductions;
  StageBytes bytes;
  std::vector<MicroBatchSum> sums = {};  // For reductions with each_pass, in their common order.
  // What devices with these stages and versions hold from the start: replicas all hold the same.
  std::map<std::pair<std::vector<StageId>, int64_t>, Bytes> resident = {};

  const Piece& PieceOf(int32_t piece) const { return channels.pieces[piece]; }
  const Channel& ChannelOf(const Piece& piece) const { return channels.channels[piece.channel]; }
};

// Bytes of the tensors of a piece, forward and backward.
inline Bytes ActivationBytes(const Channel& channel, const Piece& piece) {
  return channel.activation_bytes_per_sample * piece.samples.size();
}
inline Bytes GradientBytes(const Channel& channel, const Piece& piece) {
  return channel.gradient_bytes_per_sample * piece.samples.size();
}

// The pass whose results flow to predecessors.
inline bool MakesGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}

// The pass after which nothing of the micro-batch is needed any more.
inline bool EndsBackward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}

// Micro-batches that a stage keeps in flight.
inline int64_t InFlightMicroBatches(const Stage& stage) {
  return stage.schedule.in_flight / stage.micro_batch;
}

}  // namespace stagewright
