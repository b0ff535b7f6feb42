// How a worker runs a stage: in which order its nodes run, when each value is used for the last
// time, and into which segments a backward pass that comes in halves is cut. The engine executes
// this, and the prediction of memory follows it (stage_tape.h).
//
// A node that takes a parameter that trains is a *parameter node*; nodes that depend on parameters
// and constants alone (a transposed weight) are the *parameter side*. Parameter nodes with equally
// many parameter nodes before them (on the longest path) form one segment, and so do the other
// nodes with equally many: every segment reads only segments of lower number, and no path leaves a
// segment and comes back.
//
// The input half walks the segments from the last to the first and leaves the gradients of
// parameters out. What the weight half needs is kept of segments of parameter nodes only; it ends
// with one pass over the parameter side.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright {

// The order in which workers run nodes: topological, whatever stage they are in.
class NodeOrder {
 public:
  // O(nodes of the graph).
  explicit NodeOrder(const Graph& graph);
  // The nodes of a stage, own and replicated. O(n log n) for n of them.
  std::vector<NodeId> Of(const ProgramStage& stage) const;

 private:
  std::vector<int32_t> rank_;  // By node.
};

// A node of a stage; places number the values that the stage receives or computes.
struct SegmentNode {
  std::vector<int32_t> reads, makes;  // Places.
  bool takes_parameter = false;       // One that trains.
  bool takes_input = false;           // Inputs of the graph or totals of the batch.
};

// What `node` takes, without the places of its values. O(its arguments).
SegmentNode MakeSegmentNode(const Graph& graph, NodeId node);

// By node, in the order in which they run: the places that no later node touches, but those with
// `kept`: first what it reads, then what it makes, in their order. O(nodes + reads).
std::vector<std::vector<int32_t>> LastUses(const std::vector<SegmentNode>& nodes,
                                           const std::vector<bool>& kept);

// Which segment each node and value of a stage is in.
struct SegmentPlan {
  static constexpr int32_t kParameterSide = 0;

  int32_t segments = 1;
  std::vector<int32_t> of_node;             // Parallel to the nodes.
  std::vector<int32_t> of_place;            // -1: received.
  std::vector<bool> crosses;                // By place: read by another segment, or given.
  std::vector<std::vector<int32_t>> reads;  // By segment: places of others, ascending.
  std::vector<std::vector<int32_t>> gives;  // By segment: its places that cross, ascending.

  // Whether the segment waits for the weight half: the parameter side, or parameter nodes.
  static bool HasParameters(int32_t segment) { return segment % 2 == 0; }
};

// The segments of `nodes`, in an order in which they can run, without `reads` and `gives`.
// O(nodes + reads).
SegmentPlan NumberSegments(const std::vector<SegmentNode>& nodes, int32_t places);

// All of the plan; places below `received` come from outside, and `given` are those whose gradient
// comes from outside. O(nodes + reads, sorted).
SegmentPlan PlanSegments(const std::vector<SegmentNode>& nodes, int32_t places, int32_t received,
                         const std::vector<int32_t>& given);

}  // namespace stagewright
