#include "common/memory/parameter_shares.h"

#include <algorithm>

namespace stagewright {

int64_t ShareSize(int64_t elements, int64_t devices) { return (elements + devices - 1) / devices; }

std::vector<ParameterRange> SharesOf(const Graph& graph, const Reduction& reduction,
                                     DeviceId device) {
  const std::vector<DeviceId>& devices = reduction.devices;
  const int64_t index = std::find(devices.begin(), devices.end(), device) - devices.begin();
  std::vector<ParameterRange> ranges;
  for (ParameterId id : reduction.parameters) {
    const int64_t elements = graph.parameter(id).Elements();
    const int64_t share = ShareSize(elements, std::ssize(devices));
    ranges.push_back(
        {id, std::min(index * share, elements), std::min((index + 1) * share, elements)});
  }
  return ranges;
}

std::vector<ParameterRange> SharesOn(const Graph& graph, const Program& program, DeviceId device) {
  std::vector<ParameterRange> ranges;
  for (const Reduction& reduction : program.reductions) {
    const auto& devices = reduction.devices;
    if (!reduction.sharded || std::find(devices.begin(), devices.end(), device) == devices.end())
      continue;
    const std::vector<ParameterRange> own = SharesOf(graph, reduction, device);
    ranges.insert(ranges.end(), own.begin(), own.end());
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ParameterRange& a, const ParameterRange& b) { return a.id < b.id; });
  return ranges;
}

}  // namespace stagewright
