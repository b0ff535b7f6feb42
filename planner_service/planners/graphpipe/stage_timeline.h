// The iteration time of a layout by a small event simulation of its stages: one task per stage,
// micro-batch and direction instead of the evaluator's actions, links that carry one message at a
// time, and of long iterations only the first micro-batches, continued at the pace they reached.
// Some fifty times faster than the evaluator and mostly within a few per cent of it, so it decides
// which candidates the evaluator judges.
#pragma once

#include "common/lowering/receive_posting.h"
#include "planner_service/planners/graphpipe/layout.h"

namespace stagewright {

// ns; infinity if the samples in flight deadlock, or if the context expired first. O(t log t) for t
// tasks and messages.
double StageTimeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                     const SearchContext& context, ReceivePosting posting = {});

// How many tasks that takes. O(stages).
int64_t TimelineTasks(const StageOracle& oracle, const Partition& partition, const Layout& layout);

}  // namespace stagewright
