// When each pass of a list schedule is due: by a rule, or from the same problem read backwards.
//
// Due dates come from one of two rules:
//   Tail. The end of the step less the longest chain of work and messages behind the pass; of the
//     m-th of M micro-batches, less (M - 1 - m) periods of `pace` times the busiest device's work
//     per micro-batch: at 0, forward passes run as far ahead as memory allows (GPipe), at large
//     values a micro-batch is finished before the next one advances (depth first), and in between
//     lies 1F1B.
//   Turn. What is nearest the point where a micro-batch turns from forward to backward comes first:
//     the longest chain of forward work from a forward pass to the sinks, or of backward work from
//     there to the end of a backward pass (times `backward`), plus m periods of `pace`. Right where
//     a short stage that others wait for shares a device with long ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/units.h"
#include "planner_service/models/list_schedule/least_times.h"
#include "planner_service/models/list_schedule/pass_table.h"
#include "planner_service/models/list_schedule/task_graph.h"
#include "planner_service/models/pass_lanes.h"

namespace stagewright {

struct ListRule {
  enum class Due { kTail, kTurn };
  Due due = Due::kTail;
  double pace = 1;
  double backward = 1;  // kTurn only.
  bool split = false;   // Split backward passes where others wait for their input half.
  // A device waits for a more urgent pass that is on its way if that takes at most this share of
  // the time of the pass that it could start.
  double patience = 0;
  int32_t rounds = 0;  // Rounds of forward-backward improvement.
  friend bool operator==(const ListRule&, const ListRule&) = default;
};

// A pass with its time. Where backward passes are split, kBackward is the input half.
struct TimedPass {
  int32_t unit = 0;
  PassKind kind = PassKind::kForward;
  int32_t micro_batch = 0;
  bool whole = false;  // A backward pass that is not split.
  Nanos start = 0;
  Nanos end = 0;
};

// Only the order of due dates counts. By unit and micro-batch.
struct DueDates {
  PassTable<Nanos> forward, backward, weight;
};

// Due dates by the rule. `least` is of the same graph and `rule.split`. O(passes + links).
void SetDueDates(const TaskGraph& graph, const LeastTimes& least, const ListRule& rule,
                 DueDates& due);

// Due dates from the passes of the mirrored problem, which took until `end`; those of weight halves
// with `split` only. O(passes).
void MirrorDueDates(const TaskGraph& graph, std::span<const TimedPass> mirrored, Nanos end,
                    bool split, DueDates& due);

}  // namespace stagewright
