// A stage's nodes in the order in which a worker runs them, with what each reads, makes and saves
// for its backward pass, and where that lies: what stage_memory.h follows.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/memory/segments.h"
#include "common/training/autocast.h"

namespace stagewright {

struct TapeValue {
  const TensorMeta* meta = nullptr;
  DType dtype = DType::kFloat32;  // In which it is computed: the graph's, or what autocast takes.
  int32_t storage = -1;           // -1: a view of a parameter.
  int32_t segment = -1;   // Segment of the node that makes it; -1: received from another stage.
  bool flows = false;     // Has a gradient.
  bool given = false;     // Goes to other stages, or is reported.
  bool reported = false;  // The loss or the prediction.
  bool sent = false;      // Goes to other stages.
  bool root = false;      // A backward pass starts from its gradient.
  bool local = false;     // A root whose gradient no message brings.
  bool crosses = false;   // Is read in another segment, or a root.

  bool received() const { return segment < 0; }
};

// What lies in one piece of memory.
struct TapeStorage {
  // Null: something received, whose bytes are those of the message.
  const TensorMeta* meta = nullptr;
  DType dtype = DType::kFloat32;
};

struct TapeStep {
  NodeId node;
  bool cast = false;      // Turns an operand of the node, or its result, into another type.
  bool profiled = false;  // Planning-only: of the rest, only the segment is known.
  bool backward = false;  // Has a backward pass.
  bool view = false;      // Its result lies where its first operand does.
  // The gradient of an operand is that of the result, as PassesGradientOn (retention.h) says, or
  // the node is a view of one result.
  bool passes_gradient = false;
  // Where passes_gradient: an operand that was broadcast has a gradient of its own.
  bool sums_gradient = false;
  int32_t segment = 0;                // See SegmentPlan.
  std::vector<int32_t> reads, makes;  // Values.
  std::vector<int32_t> saves;         // Storages.
  std::vector<int32_t> last_uses;     // Values of the stage that no later node reads.
  std::vector<int32_t> widened;  // Values of which it has float32 copies while it runs forward.
  Bytes parameters = 0;          // Bytes of the parameters that it trains.
  // Bytes of the parameters that it trains and no later node reads.
  Bytes own_parameters = 0;
  // The part of it whose gradients go when a backward pass has ended (Reduction::each_pass); of a
  // planning-only node, those bytes.
  Bytes passing_parameters = 0;
  // Gradients of the weights' copies that it takes in place of those, in a smaller type: they are
  // turned into those of the parameters once what the node saved is gone.
  Bytes cast_gradients = 0;

  // Left for the weight half of a backward pass that comes in halves.
  bool waits() const { return SegmentPlan::HasParameters(segment); }
};

struct StageTape {
  std::vector<TapeStep> steps;
  std::vector<TapeValue> values;
  std::vector<TapeStorage> storages;
  std::vector<int32_t> inputs;  // Storages: inputs of the graph that the stage reads.
  int32_t segments = 0;
  bool profiled = false;  // A planning-only node is among them.
};

// What a stage gives to others, of the same device and of others.
struct GivenValues {
  std::vector<ValueRef> local;
  std::vector<ValueRef> sent;
};

// The tape of `nodes`, topologically sorted, in a precision: where that is mixed, what is cast
// (common/training/autocast.h) is cast by a step of its own, and what a stage receives and gives
// has the types of messages. `passing`, by parameter: its gradient goes after every backward pass;
// empty: none does. The graph must outlive the tape. O(nodes + reads).
StageTape MakeStageTape(const MessageTypes& types, const std::vector<NodeId>& nodes,
                        const GivenValues& given, bool has_backward,
                        const std::vector<bool>& passing = {});

}  // namespace stagewright
