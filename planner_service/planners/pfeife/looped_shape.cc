#include "planner_service/planners/pfeife/looped_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright::pfeife {
namespace {

// The passes of one direction of a device, in order.
std::vector<SlicePass> OneDirection(const LoopedShape& shape, int32_t device, bool backward) {
  std::vector<SlicePass> passes;
  for (int32_t begin = 0; begin < shape.micro_batches; begin += shape.loop_batch) {
    const int32_t end = std::min(begin + shape.loop_batch, shape.micro_batches);
    for (int32_t i = 0; i < shape.loops; ++i) {
      const int32_t loop = backward ? shape.loops - 1 - i : i;
      for (int32_t m = begin; m < end; ++m) {
        passes.push_back({loop * shape.devices + device, m, backward});
      }
    }
  }
  return passes;
}

}  // namespace

std::vector<int32_t> WarmUp(const LoopedShape& shape, const std::vector<int32_t>& prefetch) {
  std::vector<int32_t> warm_up;
  for (int32_t r = 0; r < shape.devices; ++r) {
    const int32_t least = (shape.loops - 1) * shape.loop_batch + shape.devices - r;
    warm_up.push_back(std::clamp(least + prefetch[r], 1, shape.loops * shape.micro_batches));
  }
  return warm_up;
}

LoopedShape MakeShape(int32_t devices, int32_t loops, int32_t micro_batches, int32_t loop_batch,
                      int32_t prefetch) {
  LoopedShape shape{devices, loops, micro_batches, std::min(loop_batch, micro_batches), {}};
  std::vector<int32_t> more;
  for (int32_t r = 0; r < devices; ++r) more.push_back(std::min(prefetch, devices - 1 - r));
  shape.warm_up = WarmUp(shape, more);
  return shape;
}

std::vector<LoopedShape> PossibleShapes(int32_t devices, int32_t loops, int32_t micro_batches) {
  std::vector<LoopedShape> shapes;
  for (int32_t batch = 1; batch <= micro_batches; ++batch) {
    if (batch < micro_batches && (loops == 1 || batch < devices || micro_batches % batch != 0)) {
      continue;
    }
    for (int32_t prefetch = 0; prefetch < devices; ++prefetch) {
      LoopedShape shape = MakeShape(devices, loops, micro_batches, batch, prefetch);
      if (!shapes.empty() && shapes.back() == shape) break;
      shapes.push_back(std::move(shape));
    }
  }
  return shapes;
}

std::string ToString(const LoopedShape& shape) {
  return absl::StrCat("B", shape.micro_batches, " loops", shape.loops, " batch", shape.loop_batch,
                      " warm-up ", absl::StrJoin(shape.warm_up, ","));
}

std::vector<std::vector<SlicePass>> DevicePasses(const LoopedShape& shape) {
  std::vector<std::vector<SlicePass>> devices;
  for (int32_t r = 0; r < shape.devices; ++r) {
    const std::vector<SlicePass> forward = OneDirection(shape, r, false);
    const std::vector<SlicePass> backward = OneDirection(shape, r, true);
    std::vector<SlicePass>& passes = devices.emplace_back();
    size_t next = 0;
    for (size_t i = 0; i < forward.size(); ++i) {
      passes.push_back(forward[i]);
      if (static_cast<int32_t>(i) + 1 >= shape.warm_up[r]) passes.push_back(backward[next++]);
    }
    passes.insert(passes.end(), backward.begin() + static_cast<int64_t>(next), backward.end());
  }
  return devices;
}

std::optional<std::vector<SlicePass>> TopologicalPasses(const LoopedShape& shape) {
  const auto devices = DevicePasses(shape);
  const size_t count = size_t{2} * shape.slices() * shape.micro_batches;
  // The slice whose forward (backward) pass each micro-batch has next.
  std::vector<int32_t> forward(shape.micro_batches, 0);
  std::vector<int32_t> backward(shape.micro_batches, shape.slices() - 1);
  std::vector<size_t> next(shape.devices, 0);
  std::vector<SlicePass> order;
  order.reserve(count);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t r = 0; r < shape.devices; ++r) {
      for (; next[r] < devices[r].size(); ++next[r]) {
        const SlicePass& pass = devices[r][next[r]];
        int32_t& due = pass.backward ? backward[pass.micro_batch] : forward[pass.micro_batch];
        if (due != pass.slice) break;
        if (pass.backward && forward[pass.micro_batch] < shape.slices()) break;
        due += pass.backward ? -1 : 1;
        order.push_back(pass);
        moved = true;
      }
    }
  }
  if (order.size() < count) return std::nullopt;
  return order;
}

}  // namespace stagewright::pfeife
