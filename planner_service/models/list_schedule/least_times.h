// What every schedule of a task graph takes at least, so that a search need not make those that
// would be too long.
#pragma once

#include <vector>

#include "common/base/units.h"
#include "planner_service/models/list_schedule/task_graph.h"

namespace stagewright {

struct LeastTimes {
  // By unit, of one micro-batch: from the start of its forward or backward pass to the end of the
  // step, along the longest chain of passes and messages that follows. Of a backward pass that is
  // split, from the start of its input half.
  std::vector<Nanos> forward_left, backward_left;
  // By device: from the end of its last pass to the end of the step.
  std::vector<Nanos> device_left;
  // By link of the cluster: the time of all its messages, and from the end of the last one to the
  // end of the step.
  std::vector<Nanos> link_work, link_left;
  // The whole step: the longest of what one device, one unit or one link of the cluster does, from
  // the moment when the first micro-batch can get there.
  Nanos step = 0;
};

// `split`: backward passes are, where that helps somebody. Keeps the memory of `least`.
// O(units + links and their routes).
void SetLeastTimes(const TaskGraph& graph, bool split, LeastTimes& least);

}  // namespace stagewright
