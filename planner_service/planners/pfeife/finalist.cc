#include "planner_service/planners/pfeife/finalist.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "planner_service/planners/pfeife/settings.h"

namespace stagewright::pfeife {

bool Better(const Finalist& a, const Finalist& b) {
  return std::tie(a.cuts.excess, a.cuts.time) < std::tie(b.cuts.excess, b.cuts.time);
}

LoopedShape Short(LoopedShape shape) {
  shape.micro_batches = static_cast<int32_t>(Shortened(shape.micro_batches, shape.devices));
  shape.loop_batch = std::min(shape.loop_batch, shape.micro_batches);
  return shape;
}

Finalist Lengthened(Finalist finalist, int64_t mini_batch) {
  const int64_t all = mini_batch / finalist.model->samples();
  const int64_t more = all - finalist.shape.micro_batches;
  if (more == 0) return finalist;
  SliceCosts slices;
  finalist.model->Slices(finalist.cuts.points, finalist.devices, slices);
  std::vector<double> work(finalist.devices.size(), 0);
  for (size_t s = 0; s < slices.forward.size(); ++s) {
    work[s % work.size()] += slices.forward[s] + slices.backward[s];
  }
  finalist.cuts.time += static_cast<double>(more) * *std::max_element(work.begin(), work.end());
  LoopedShape& shape = finalist.shape;
  if (shape.loop_batch == shape.micro_batches && shape.loops == 1) {
    shape.loop_batch = static_cast<int32_t>(all);
  }
  shape.micro_batches = static_cast<int32_t>(all);
  return finalist;
}

void Finalists::Add(Finalist finalist) {
  least_excess_ = std::min(least_excess_, finalist.cuts.excess);
  const auto place = std::upper_bound(finalists_.begin(), finalists_.end(), finalist, Better);
  finalists_.insert(place, std::move(finalist));
}

}  // namespace stagewright::pfeife
