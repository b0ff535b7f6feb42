#include "planner_service/planners/pfeife/settings.h"

#include <algorithm>
#include <numeric>

#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright::pfeife {
namespace {

constexpr int64_t kSteps[] = {1, 2, 4, 8};

// Device ids, the fastest first; equals keep their order.
std::vector<int32_t> BySpeed(const Problem& problem) {
  const Cluster& cluster = *problem.cluster;
  const std::vector<Nanos> times = TimesOfKinds(problem);
  std::vector<int32_t> devices(cluster.size());
  std::iota(devices.begin(), devices.end(), 0);
  std::stable_sort(devices.begin(), devices.end(), [&](int32_t a, int32_t b) {
    return times[cluster.device(DeviceId(a)).kind] < times[cluster.device(DeviceId(b)).kind];
  });
  return devices;
}

std::vector<std::vector<int32_t>> DeviceLists(const Problem& problem) {
  const Cluster& cluster = *problem.cluster;
  const int32_t most = std::min(cluster.size(), problem.operators->size());
  std::vector<int32_t> listed(cluster.size());
  std::iota(listed.begin(), listed.end(), 0);
  const std::vector<int32_t> falling = BySpeed(problem);
  std::vector<std::vector<int32_t>> lists;
  const auto add = [&](const std::vector<int32_t>& devices, int32_t count) {
    std::vector<int32_t> first(devices.begin(), devices.begin() + count);
    if (std::find(lists.begin(), lists.end(), first) == lists.end()) lists.push_back(first);
    return lists.back();
  };
  add(listed, most);
  if (!cluster.Homogeneous()) {
    std::vector<int32_t> rising(falling.begin(), falling.begin() + most);
    add(falling, most);
    std::reverse(rising.begin(), rising.end());
    add(rising, most);
  }
  for (int32_t count = most / 2; count >= 1; count /= 2) {
    add(listed, count);
    if (!cluster.Homogeneous()) add(falling, count);
  }
  return lists;
}

}  // namespace

std::vector<int64_t> SizesThatFill(const Problem& problem, int32_t devices,
                                   const PlanOptions& options) {
  const std::vector<int64_t> all = MicroBatches(problem, options);
  if (options.micro_batch > 0 || all.empty()) return all;
  std::vector<int64_t> sizes;
  for (int64_t step : kSteps) {
    const int64_t most = std::max<int64_t>(1, problem.mini_batch / (step * devices));
    const int64_t size = SizeNextTo(all, most, Rounding::kDown).value_or(all.front());
    if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
  }
  return sizes;
}

std::vector<LoopedSetting> Settings(const Problem& problem, const PlanOptions& options) {
  const int32_t operators = problem.operators->size();
  int32_t most_stages = operators;
  if (options.max_stages > 0) most_stages = std::min(most_stages, options.max_stages);
  int32_t most_loops = options.max_loops > 0 ? options.max_loops : kMostLoops;
  if (options.num_stages > 0 && options.max_loops == 0) most_loops = options.num_stages;
  std::vector<LoopedSetting> settings;
  for (const std::vector<int32_t>& all : DeviceLists(problem)) {
    const auto count = static_cast<int32_t>(all.size());
    for (int32_t loops = 1; loops <= most_loops; ++loops) {
      std::vector<int32_t> devices = all;
      if (options.num_stages > 0) {
        // The most devices of the list that make up this number of stages.
        if (options.num_stages % loops != 0 || options.num_stages / loops > count) continue;
        devices.resize(options.num_stages / loops);
      } else if (loops * count > most_stages) {
        if (loops > 1) break;
        devices.resize(most_stages);
      } else if (loops > 1 && count == 1) {
        break;
      }
      const auto used = static_cast<int32_t>(devices.size());
      for (int64_t samples : SizesThatFill(problem, used, options)) {
        settings.push_back({devices, loops, samples});
      }
    }
  }
  return settings;
}

std::vector<LoopedShape> Shapes(int32_t devices, int32_t loops, int32_t micro_batches) {
  std::vector<int32_t> batches = {micro_batches};
  if (loops > 1) {
    for (int32_t batch : {devices, 2 * devices}) {
      if (batch < micro_batches && micro_batches % batch == 0) batches.push_back(batch);
    }
  }
  std::sort(batches.begin(), batches.end());
  std::vector<LoopedShape> shapes;
  for (int32_t batch : batches) {
    for (int32_t prefetch = 0, next = 1; prefetch < devices;) {
      LoopedShape shape = MakeShape(devices, loops, micro_batches, batch, prefetch);
      if (shapes.empty() || shapes.back() != shape) shapes.push_back(std::move(shape));
      const int32_t sum = prefetch + next;
      prefetch = next;
      next = std::max(sum, next + 1);
    }
  }
  return shapes;
}

int64_t Shortened(int64_t micro_batches, int32_t devices) {
  const int64_t most = std::max<int64_t>(8 * int64_t{devices}, 64) / devices * devices;
  return std::min(micro_batches, most);
}

}  // namespace stagewright::pfeife
