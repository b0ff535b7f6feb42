#include "common/lowering/channels.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/cost/value_bytes.h"

namespace stagewright {
namespace {

// What crosses one edge of the stage graph, whatever the replicas.
struct EdgeContents {
  std::vector<ValueRef> values;           // Sorted.
  std::vector<ValueRef> gradient_values;  // Sorted; subset of `values`.
  Bytes activation_bytes_per_sample = 0;
  Bytes gradient_bytes_per_sample = 0;
  bool has_gradient = false;
};

template <typename T>
void SortUnique(std::vector<T>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

// Slots of the two stages coincide, so that tensors cross whole.
bool SameSlots(const ProgramStage& a, const ProgramStage& b) {
  return a.micro_batch == b.micro_batch && a.devices.size() == b.devices.size();
}

absl::Status CheckSplit(const Graph& graph, const std::vector<ValueRef>& values, StageEdge edge,
                        const std::vector<ProgramStage>& stages) {
  if (SameSlots(stages[edge.from.index()], stages[edge.to.index()])) return absl::OkStatus();
  for (ValueRef value : values) {
    const Node& node = graph.node(value.node);
    if (node.cost.has_value() || graph.meta(value).IsBatched()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "output ", value.output, " of node \"", node.name,
        "\" does not have its samples side by side and cannot be split between stages ",
        edge.from.value(), " and ", edge.to.value(),
        ", which differ in micro-batch size or replicas"));
  }
  return absl::OkStatus();
}

// Reads every node once and sorts what it reads by edge.
std::map<StageEdge, EdgeContents> CollectContents(const Graph& graph, const Strategy& strategy,
                                                  bool training) {
  const std::vector<StageId> owner = StageOwners(graph, strategy.stages);
  std::map<StageEdge, EdgeContents> contents;
  for (const StageEdge& edge : strategy.edges) contents[edge];
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!owner[v].valid()) continue;
    const auto add = [&](ValueRef value) {
      const StageId from = owner[value.node.index()];
      if (!from.valid() || from == owner[v]) return;
      const bool profiled = graph.node(value.node).cost.has_value();
      EdgeContents& edge = contents[{from, owner[v]}];
      edge.values.push_back(value);
      if (training && graph.needs_backward(NodeId(v)) && graph.needs_backward(value.node) &&
          (profiled || IsFloating(graph.meta(value).dtype))) {
        edge.gradient_values.push_back(value);
      }
    };
    ForEachRead(graph, NodeId(v), add);
  }
  return contents;
}

void AddSizes(const MessageTypes& types, int64_t samples, EdgeContents& contents) {
  for (ValueRef value : contents.values)
    contents.activation_bytes_per_sample += ValueBytesPerSample(types, value, samples);
  for (ValueRef value : contents.gradient_values)
    contents.gradient_bytes_per_sample += ValueBytesPerSample(types, value, samples);
}

// Walks the two tilings together and adds a piece for every overlap, a channel for every pair of
// replicas that is met. Channel indices are final once sorted by AddEdge.
void AddPieces(const Slots& slots, StageEdge edge, std::vector<Piece>& pieces,
               std::vector<int32_t>& channel_of_pair, int32_t consumers) {
  int32_t producer = slots.first(edge.from);
  int32_t consumer = slots.first(edge.to);
  while (producer < slots.end(edge.from) && consumer < slots.end(edge.to)) {
    const Slot& from = slots[producer];
    const Slot& to = slots[consumer];
    const int32_t pair = from.replica * consumers + to.replica;
    channel_of_pair[pair] = 0;
    pieces.push_back({pair, producer, consumer, Intersect(from.samples, to.samples)});
    if (from.samples.end <= to.samples.end) ++producer;
    if (to.samples.end <= from.samples.end) ++consumer;
  }
}

void AddEdge(const Slots& slots, const std::vector<ProgramStage>& stages, StageEdge edge,
             const EdgeContents& contents, Channels& result) {
  const ProgramStage& from = stages[edge.from.index()];
  const ProgramStage& to = stages[edge.to.index()];
  const auto consumers = static_cast<int32_t>(to.devices.size());
  std::vector<int32_t> channel_of_pair(from.devices.size() * to.devices.size(), -1);
  const size_t first_piece = result.pieces.size();
  AddPieces(slots, edge, result.pieces, channel_of_pair, consumers);
  for (size_t pair = 0; pair < channel_of_pair.size(); ++pair) {
    if (channel_of_pair[pair] < 0) continue;
    channel_of_pair[pair] = static_cast<int32_t>(result.channels.size());
    Channel& channel = result.channels.emplace_back();
    channel.from = edge.from;
    channel.to = edge.to;
    channel.source = from.devices[pair / consumers];
    channel.target = to.devices[pair % consumers];
    channel.values = contents.values;
    channel.gradient_values = contents.gradient_values;
    channel.activation_bytes_per_sample = contents.activation_bytes_per_sample;
    channel.gradient_bytes_per_sample = contents.gradient_bytes_per_sample;
    channel.has_gradient = contents.has_gradient;
  }
  for (size_t i = first_piece; i < result.pieces.size(); ++i)
    result.pieces[i].channel = channel_of_pair[result.pieces[i].channel];
}

void GroupBySlot(int32_t num_slots, const std::vector<Piece>& pieces, int32_t Piece::*slot,
                 std::vector<int32_t>& begin, std::vector<int32_t>& items) {
  begin.assign(num_slots + 1, 0);
  for (const Piece& piece : pieces) ++begin[piece.*slot + 1];
  for (int32_t i = 0; i < num_slots; ++i) begin[i + 1] += begin[i];
  items.resize(pieces.size());
  std::vector<int32_t> next(begin.begin(), begin.end() - 1);
  for (size_t i = 0; i < pieces.size(); ++i)
    items[next[pieces[i].*slot]++] = static_cast<int32_t>(i);
}

}  // namespace

Slots::Slots(const Strategy& strategy) {
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const Stage& stage = strategy.stages[s];
    const auto replicas = static_cast<int32_t>(stage.devices.size());
    first_.push_back(size());
    replicas_.push_back(replicas);
    for (int64_t begin = 0; begin < strategy.mini_batch; begin += stage.micro_batch) {
      for (int32_t r = 0; r < replicas; ++r) {
        slots_.push_back({StageId(static_cast<int64_t>(s)), r,
                          ReplicaShare({begin, begin + stage.micro_batch}, r, replicas)});
      }
    }
  }
  first_.push_back(size());
}

absl::StatusOr<Channels> MakeChannels(const MessageTypes& types, const Strategy& strategy,
                                      const std::vector<ProgramStage>& stages, const Slots& slots,
                                      bool training) {
  const Graph& graph = types.graph();
  Channels result;
  for (auto& [edge, contents] : CollectContents(graph, strategy, training)) {
    SortUnique(contents.values);
    SortUnique(contents.gradient_values);
    RETURN_IF_ERROR(CheckSplit(graph, contents.values, edge, stages));
    AddSizes(types, slots[slots.first(edge.from)].samples.size(), contents);
    // A control edge of a sequential pipeline orders backward passes too.
    contents.has_gradient = !contents.gradient_values.empty() ||
                            (contents.values.empty() && stages[edge.from.index()].has_backward &&
                             stages[edge.to.index()].has_backward);
    AddEdge(slots, stages, edge, contents, result);
  }
  GroupBySlot(slots.size(), result.pieces, &Piece::consumer, result.into_begin, result.into);
  GroupBySlot(slots.size(), result.pieces, &Piece::producer, result.out_begin, result.out_of);
  return result;
}

}  // namespace stagewright
