#include "planner_service/planners/pfeife/peak_memory.h"

#include <algorithm>
#include <utility>

namespace stagewright::pfeife {
namespace {

// At a moment, bytes come or go.
using Change = std::pair<double, Bytes>;

Bytes Peak(std::vector<Change>& changes) {
  // What goes makes room for what comes at the same moment: a device runs one pass at a time.
  std::sort(changes.begin(), changes.end());
  Bytes now = 0;
  Bytes most = 0;
  for (const Change& change : changes) most = std::max(most, now += change.second);
  return most;
}

}  // namespace

std::vector<Bytes> PeakMemory(const SliceMemory& memory, const DependencyGraph& graph,
                              const SliceCosts& costs) {
  const LoopedShape& shape = graph.shape();
  std::vector<std::vector<Change>> changes(shape.devices);
  std::vector<Bytes> peaks(shape.devices, 0);
  for (int32_t s = 0; s < shape.slices(); ++s) {
    const int32_t r = shape.device_of(s);
    peaks[r] += memory.fixed[s];
    for (int32_t m = 0; m < shape.micro_batches; ++m) {
      changes[r].emplace_back(graph.Start({s, m, false}, costs), memory.each[s]);
      changes[r].emplace_back(graph.Start({s, m, true}, costs) + costs.backward[s],
                              -memory.each[s]);
    }
  }
  for (const SliceCosts::Message& message : costs.messages) {
    if (message.back < 0) continue;
    std::vector<Change>& sender = changes[shape.device_of(message.to)];
    for (int32_t m = 0; m < shape.micro_batches; ++m) {
      sender.emplace_back(graph.Start({message.to, m, true}, costs) + costs.backward[message.to],
                          message.back_bytes);
      sender.emplace_back(graph.Start({message.from, m, true}, costs), -message.back_bytes);
    }
  }
  for (int32_t r = 0; r < shape.devices; ++r) peaks[r] += Peak(changes[r]);
  return peaks;
}

}  // namespace stagewright::pfeife
