#include "common/memory/stage_tape.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/cost/retention.h"
#include "common/graph/aten.h"
#include "common/memory/tape_casts.h"
#include "common/training/autocast.h"

namespace stagewright {
namespace {

class TapeMaker {
 public:
  TapeMaker(const MessageTypes& types, bool has_backward, const std::vector<bool>& passing)
      : types_(types), graph_(types.graph()), has_backward_(has_backward), passing_(passing) {}

  StageTape Make(const std::vector<NodeId>& nodes, const GivenValues& given) {
    for (NodeId node : nodes) AddStep(node);
    CutIntoSegments();
    FindOwnParameters();
    const bool starts = has_backward_;
    for (ValueRef value : given.sent) Give(value, {.sent = true, .root = starts});
    for (ValueRef value : given.local) Give(value, {.sent = true, .root = starts, .local = true});
    if (graph_.loss()) Give(*graph_.loss(), {.root = starts, .local = true, .reported = true});
    if (graph_.prediction()) Give(*graph_.prediction(), {.reported = true});
    return std::move(tape_);
  }

 private:
  int32_t ValueOf(ValueRef ref) {
    const auto [entry, is_new] = value_of_.try_emplace({ref.node.value(), ref.output},
                                                       static_cast<int32_t>(tape_.values.size()));
    if (is_new) {
      TapeValue& value = tape_.values.emplace_back();
      value.meta = &graph_.meta(ref);
      value.dtype = types_[ref];
      value.flows =
          has_backward_ && graph_.needs_backward(ref.node) && IsFloating(value.meta->dtype);
    }
    return entry->second;
  }

  int32_t AddStorage(const TensorMeta* meta) {
    tape_.storages.push_back({meta, meta == nullptr ? DType::kFloat32 : meta->dtype});
    return static_cast<int32_t>(tape_.storages.size()) - 1;
  }

  int32_t StorageOfInput(InputId input) {
    const auto [entry, is_new] = input_of_.try_emplace(input.value(), 0);
    if (is_new) {
      entry->second = AddStorage(&graph_.input(input).meta);
      tape_.inputs.push_back(entry->second);
    }
    return entry->second;
  }

  void AddStep(NodeId id) {
    const Node& node = graph_.node(id);
    TapeStep step;
    step.node = id;
    SegmentNode& places = nodes_.emplace_back();
    if (node.cost.has_value()) {
      step.profiled = tape_.profiled = true;
      tape_.steps.push_back(std::move(step));
      return;
    }
    places = MakeSegmentNode(graph_, id);
    step.view = KindOfTarget(node.target) == AtenKind::kView;
    step.backward = has_backward_ && graph_.needs_backward(id);
    // One gradient of several views of a tensor is put together anew.
    step.passes_gradient = step.view ? node.outputs.size() == 1 : PassesGradientOn(node);
    step.sums_gradient = !step.view && step.passes_gradient && AtenName(node.target) == "add";
    std::vector<int32_t> operands;  // Storages.
    for (ValueRef ref : graph_.Values(id)) {
      if (graph_.node(ref.node).cost.has_value()) continue;
      const int32_t value = ValueOf(ref);
      TapeValue& read = tape_.values[value];
      if (read.received() && read.storage < 0) read.storage = AddStorage(nullptr);
      places.reads.push_back(value);
      operands.push_back(read.storage);
    }
    for (InputId input : graph_.Inputs(id)) operands.push_back(StorageOfInput(input));
    if (step.backward && !step.view && NeedsItsInputs(graph_, id)) step.saves = operands;
    AddResults(step, operands.empty() ? -1 : operands.front());
    for (ParameterId p : graph_.Parameters(id)) {
      if (graph_.parameter(p).trainable) step.parameters += graph_.parameter(p).SizeBytes();
    }
    std::erase(step.saves, -1);
    tape_.steps.push_back(std::move(step));
  }

  // Second results are statistics and masks.
  void AddResults(TapeStep& step, int32_t first_operand) {
    const bool saves_first = step.backward && !step.view && NeedsItsOutputs(graph_, step.node);
    const auto results = static_cast<int32_t>(graph_.node(step.node).outputs.size());
    for (int32_t i = 0; i < results; ++i) {
      const int32_t index = ValueOf({step.node, i});
      TapeValue& value = tape_.values[index];
      value.segment = 0;
      value.storage = step.view ? first_operand : AddStorage(value.meta);
      if (saves_first || (i > 0 && step.backward && !step.view))
        step.saves.push_back(value.storage);
      nodes_.back().makes.push_back(index);
    }
  }

  // Planning-only nodes stay in the segment that waits for the weight half, and touch no value.
  void CutIntoSegments() {
    const auto values = static_cast<int32_t>(tape_.values.size());
    std::vector<bool> received(values);
    for (int32_t v = 0; v < values; ++v) received[v] = tape_.values[v].received();
    std::vector<std::vector<int32_t>> last_uses = LastUses(nodes_, received);
    const SegmentPlan plan = NumberSegments(nodes_, values);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      TapeStep& step = tape_.steps[i];
      if (step.profiled) continue;
      step.segment = plan.of_node[i];
      step.reads = std::move(nodes_[i].reads);
      step.makes = std::move(nodes_[i].makes);
      step.last_uses = std::move(last_uses[i]);
    }
    for (int32_t v = 0; v < values; ++v) {
      tape_.values[v].segment = plan.of_place[v];
      tape_.values[v].crosses = plan.crosses[v];
    }
    tape_.segments = plan.segments;
  }

  void FindOwnParameters() {
    absl::flat_hash_set<int32_t> seen;
    for (auto step = tape_.steps.rbegin(); step != tape_.steps.rend(); ++step) {
      if (step->parameters == 0 || !step->backward) continue;
      for (ParameterId p : graph_.Parameters(step->node)) {
        if (!graph_.parameter(p).trainable || !seen.insert(p.value()).second) continue;
        step->own_parameters += graph_.parameter(p).SizeBytes();
        if (!passing_.empty() && passing_[p.index()])
          step->passing_parameters += graph_.parameter(p).SizeBytes();
      }
    }
  }

  struct Ways {
    bool sent = false, root = false, local = false, reported = false;
  };
  void Give(ValueRef ref, const Ways& ways) {
    const auto found = value_of_.find({ref.node.value(), ref.output});
    if (found == value_of_.end() || tape_.values[found->second].received()) return;
    TapeValue& value = tape_.values[found->second];
    value.given = true;
    value.sent = value.sent || ways.sent;
    value.root = value.root || ways.root;
    value.reported = value.reported || ways.reported;
    value.local = value.local || ways.local;
    value.crosses = value.crosses || ways.root;
  }

  const MessageTypes& types_;
  const Graph& graph_;
  const bool has_backward_;
  const std::vector<bool>& passing_;
  StageTape tape_;
  std::vector<SegmentNode> nodes_;  // Parallel to the steps; empty for planning-only ones.
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> value_of_;  // By node and output.
  absl::flat_hash_map<int32_t, int32_t> input_of_;                      // Storages.
};

}  // namespace

StageTape MakeStageTape(const MessageTypes& types, const std::vector<NodeId>& nodes,
                        const GivenValues& given, bool has_backward,
                        const std::vector<bool>& passing) {
  StageTape tape = TapeMaker(types, has_backward, passing).Make(nodes, given);
  if (IsMixed(types.precision()) && !tape.profiled)
    AddCasts(types.graph(), types.precision(), tape);
  return tape;
}

}  // namespace stagewright
