// Orders the work of every device by a list schedule in real time.
//
// Problem. Stages, their devices and the micro-batch size are decided; several stages may share a
// device (loops). Find an order of the passes on each device with a short step: every unit (one
// replica of one stage) runs forward and backward passes in order of micro-batch, a pass waits for
// the messages it reads, and memory bounds what a device keeps. The backward pass may be split: its
// input half is what others wait for, its weight half fills idle time.
//
// Method. A clock goes over the moments at which a device is free and work is there. Of the passes
// that are ready, the one with the earliest due date starts. Due dates come from one of two rules:
//   Tail. The end of the step less the longest chain of work and messages behind the pass; of the
//     m-th of M micro-batches, less (M - 1 - m) periods of `pace` times the busiest device's work
//     per micro-batch: at 0, forward passes run as far ahead as memory allows (GPipe), at large
//     values a micro-batch is finished before the next one advances (depth first), and in between
//     lies 1F1B.
//   Turn. What is nearest the point where a micro-batch turns from forward to backward comes first:
//     the longest chain of forward work from a forward pass to the sinks, or of backward work from
//     there to the end of a backward pass (times `backward`), plus m periods of `pace`. Right where
//     a short stage that others wait for shares a device with long ones.
// A schedule can then be improved: the same problem read backwards in time (forward and backward
// passes change places) gives the latest time at which each pass can start, which is a better due
// date than any formula; this is the forward-backward improvement of project scheduling (Li and
// Willis 1992).
//
// Memory. A device starts a forward pass only if, after it, its oldest unfinished micro-batch can
// still pass through all units of the device. So the oldest micro-batch of the step can always
// advance, and no schedule deadlocks.
//
// Links of the cluster carry one message at a time here, in the order in which they become ready;
// the simulator, which judges, shares them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/lowering/receive_posting.h"
#include "planner_service/models/task_graph.h"

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
  int32_t rounds = 0;  // Of forward-backward improvement.
  friend bool operator==(const ListRule&, const ListRule&) = default;
};

struct ListResult {
  bool fits = false;                // One micro-batch at a time fits into memory everywhere.
  Nanos step_time = 0;              // An estimate of what the simulator will find.
  std::vector<Nanos> busy;          // By device: computing,
  std::vector<Nanos> ends;          // and when its last pass ends.
  std::vector<DeviceOrder> orders;  // For Strategy::orders, if asked for.
};

class ListScheduler {
 public:
  explicit ListScheduler(ReceivePosting posting = {}) : posting_(posting) {}

  // O(t (log t + u)) for t passes and u units per device, per round. Deterministic. Keeps its
  // memory for the next call; not thread-safe. A schedule without rounds ends early once it must
  // take longer than `limit`: its step time is then a lower bound that is above `limit`, and
  // nothing but `fits` holds besides.
  ListResult Run(const TaskGraph& graph, const ListRule& rule, bool orders,
                 Nanos limit = std::numeric_limits<Nanos>::max());

 private:
  enum Phase : int32_t { kForward, kBackward, kWeight };
  struct Event {
    Nanos time;
    int32_t device;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : device > other.device;
    }
  };
  struct Done {  // A pass in the order in which passes started.
    int32_t unit;
    Phase phase;
    int32_t micro_batch;
    bool whole;  // A backward pass that was not split.
    Nanos start;
    Nanos end;
  };
  // What a device computed, as far as it decides when a receive is posted.
  struct Past {
    LanePass pass;
    Nanos end;
  };
  // The graph read forwards or backwards in time.
  struct Direction {
    bool reversed = false;
    bool split = false;
  };

  void Prepare(const TaskGraph& graph, Direction direction);
  void DueDates(const ListRule& rule);
  void TailDueDates(Nanos period);
  void TurnDueDates(Nanos period, double backward);
  void DueDatesFrom(const std::vector<Done>& reversed, Nanos end, bool split);
  // 0, or a lower bound above `limit` on the step time of a schedule that was given up.
  Nanos Sweep(Direction direction, Nanos limit);
  void Decide(int32_t device, Nanos now);
  void Start(int32_t unit, Phase phase, Nanos now);
  void Deliver(int32_t unit, Phase phase, Nanos end);
  bool MayStart(int32_t unit) const;
  Nanos Posted(int32_t unit, Phase phase, int32_t micro_batch) const;
  Nanos Finish();
  std::vector<DeviceOrder> Orders() const;
  bool Mergeable(const Done& input, const Done& weight) const;

  int64_t WorkOf(int32_t unit, int32_t micro_batch) const {
    return static_cast<int64_t>(unit) * micro_batches_ + micro_batch;
  }
  Nanos TimeOf(int32_t unit, Phase phase) const;
  bool Splits(int32_t unit) const;

  ReceivePosting posting_;
  const TaskGraph* graph_ = nullptr;
  Direction direction_;
  double patience_ = 0;
  int32_t micro_batches_ = 0;
  // By unit and micro-batch.
  std::vector<Nanos> due_forward_, due_backward_, due_weight_;
  std::vector<Nanos> ready_forward_, ready_backward_;
  std::vector<int32_t> missing_forward_, missing_backward_;
  std::vector<Nanos> started_backward_;
  // By unit: the next micro-batch of each phase.
  std::vector<int32_t> next_forward_, next_backward_, next_weight_, released_;
  std::vector<Nanos> tail_forward_, tail_backward_;
  // By device.
  std::vector<Nanos> free_;  // End of the last pass.
  std::vector<std::vector<Past>> past_;
  std::vector<Nanos> work_;  // Still to be started, forwards in time.
  std::vector<Bytes> used_;
  std::vector<Nanos> link_free_;
  std::vector<Event> events_;  // Heap.
  std::vector<Done> done_;
};

}  // namespace stagewright
