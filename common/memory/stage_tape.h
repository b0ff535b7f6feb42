// A stage's nodes in the order in which a worker runs them, with what each reads, makes and saves
// for its backward pass, and where that lies: what stage_memory.h follows.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/memory/segments.h"

namespace stagewright {

struct TapeValue {
  const TensorMeta* meta = nullptr;
  int32_t storage = -1;  // -1: a view of a parameter.
  int32_t segment = -1;  // Of the node that makes it; -1: received from another stage.
  bool flows = false;    // Has a gradient.
  bool given = false;    // Goes to other stages, or is the loss or the prediction.
  bool sent = false;     // Goes to other stages.
  bool root = false;     // A backward pass starts there,
  bool local = false;    // from a gradient that no message brings.
  bool crosses = false;  // Is read in another segment, or a root.

  bool received() const { return segment < 0; }
};

struct TapeStep {
  NodeId node;
  bool profiled = false;              // Planning-only: of the rest, only the segment is known.
  bool backward = false;              // Has a backward pass.
  bool view = false;                  // Its result lies where its first operand does.
  bool passes_gradient = false;       // See retention.h; so does a view of one result,
  bool sums_gradient = false;         // unless the operand was broadcast.
  int32_t segment = 0;                // See SegmentPlan.
  std::vector<int32_t> reads, makes;  // Values.
  std::vector<int32_t> saves;         // Storages.
  std::vector<int32_t> last_uses;     // Values of the stage that no later node reads.
  Bytes parameters = 0;               // Those that it trains;
  Bytes own_parameters = 0;           // of them, those that no later node reads.

  // Left for the weight half of a backward pass that comes in halves.
  bool waits() const { return SegmentPlan::HasParameters(segment); }
};

struct StageTape {
  std::vector<TapeStep> steps;
  std::vector<TapeValue> values;
  // What a storage holds; null: something received, whose bytes are those of the message.
  std::vector<const TensorMeta*> storages;
  std::vector<int32_t> inputs;  // Storages: inputs of the graph that the stage reads.
  int32_t segments = 0;
  bool profiled = false;  // A planning-only node is among them.
};

// What a stage gives to others, of the same device and of others.
struct GivenValues {
  std::vector<ValueRef> local;
  std::vector<ValueRef> sent;
};

// Of `nodes`, topologically sorted. The graph must outlive the tape. O(nodes + reads).
StageTape MakeStageTape(const Graph& graph, const std::vector<NodeId>& nodes,
                        const GivenValues& given, bool has_backward);

}  // namespace stagewright
