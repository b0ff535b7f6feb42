// The iteration time of a layout by the timeline of models/timeline.h with shared links: one unit
// per stage, and of long iterations only the first micro-batches, continued at the pace they
// reached. Some fifty times faster than the evaluator and mostly within a few per cent of it, so it
// decides which candidates the evaluator judges.
#pragma once

#include "common/lowering/receive_posting.h"
#include "planner_service/models/timeline.h"
#include "planner_service/planners/graphpipe/layout.h"

namespace stagewright {

// ns; infinity if the samples in flight deadlock, or if the context expired first. O(t log t + m)
// for t passes and m messages.
double StageTimeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                     const SearchContext& context, ReceivePosting posting = {});

// The same for layouts that differ only in samples in flight, whose costs are `costs`.
double StageTimeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                     const TimelineCosts& costs, const SearchContext& context,
                     ReceivePosting posting = {});
// What the stages cost and exchange. `layout` outlives the result.
TimelineCosts StageTimelineCosts(const StageOracle& oracle, const Partition& partition,
                                 const Layout& layout);

// How many tasks that takes. O(stages).
int64_t TimelineTasks(const StageOracle& oracle, const Partition& partition, const Layout& layout);

}  // namespace stagewright
