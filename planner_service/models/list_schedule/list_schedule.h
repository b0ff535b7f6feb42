// Orders the work of every device by a list schedule in real time.
//
// Problem. Stages, their devices and the micro-batch size are decided; several stages may share a
// device (loops). Find an order of the passes on each device with a short step: every unit (one
// replica of one stage) runs forward and backward passes in order of micro-batch, a pass waits for
// the messages it reads, and memory bounds what a device keeps. The backward pass may be split: its
// input half is what others wait for, its weight half fills idle time.
//
// Method. A clock goes over the moments at which a device is free and work is there. Of the passes
// that are ready, the one with the earliest due date (due_dates.h) starts.
// A schedule can then be improved: the same problem read backwards in time (forward and backward
// passes change places) gives the latest time at which each pass can start, which is a better due
// date than any formula; this is the forward-backward improvement of project scheduling (Li and
// Willis 1992).
//
// Memory. A device starts a forward pass only if, after it, its oldest unfinished micro-batch can
// still pass through all units of the device. So the oldest micro-batch of the step can always
// advance, and no schedule deadlocks.
//
// Every link of a message's route carries the messages of one pass at a time here, in the order in
// which the passes start, and these arrive together; the simulator, which judges, shares it among
// all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/lowering/receive_posting.h"
#include "planner_service/models/list_schedule/due_dates.h"
#include "planner_service/models/list_schedule/least_times.h"
#include "planner_service/models/list_schedule/task_graph.h"

namespace stagewright {

struct ListResult {
  bool fits = false;                // One micro-batch at a time fits into memory everywhere.
  Nanos step_time = 0;              // An estimate of what the simulator will find.
  int64_t work = 0;                 // Passes looked at and messages sent, in all rounds.
  std::vector<Nanos> busy;          // By device: compute time.
  std::vector<Nanos> ends;          // By device: when its last pass ends.
  std::vector<DeviceOrder> orders;  // For Strategy::orders, if asked for.
};

class ListScheduler {
 public:
  explicit ListScheduler(ReceivePosting posting = {}) : posting_(posting) {}

  // O(t (log t + u)) for t passes and u units per device, per round. Deterministic. Keeps its
  // memory for the next call; not thread-safe. A schedule that must take longer than `limit` is not
  // made, and one without rounds ends early once it must: its step time is then a lower bound that
  // is above `limit`, and nothing but `fits` holds besides.
  ListResult Run(const TaskGraph& graph, const ListRule& rule, bool orders,
                 Nanos limit = std::numeric_limits<Nanos>::max());
  // As Run, who knows `least` of the graph and of rule.split already.
  ListResult Run(const TaskGraph& graph, const LeastTimes& least, const ListRule& rule, bool orders,
                 Nanos limit);

 private:
  struct Event {
    Nanos time;
    int32_t device;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : device > other.device;
    }
  };
  // What a device computed, as far as it decides when a receive is posted.
  struct Past {
    LanePass pass;
    Nanos end;
  };
  struct DeviceState {
    Nanos free = 0;  // End of the last pass.
    Nanos work = 0;  // Still to be started, forwards in time.
    Bytes used = 0;
    std::vector<Past> past;
  };
  // The next micro-batch of each kind of pass, and the oldest that holds memory.
  struct UnitState {
    int32_t forward = 0, backward = 0, weight = 0;
    int32_t released = 0;
  };
  // The messages that the passes of one kind wait for. By unit and micro-batch.
  struct Inputs {
    PassTable<Nanos> ready;
    PassTable<int32_t> missing;
  };
  // The graph read forwards or backwards in time.
  struct Direction {
    bool reversed = false;
    bool split = false;
  };
  struct Choice;
  // What a device keeps room for: its oldest unfinished micro-batch, and the memory in use once
  // that has passed through all units.
  struct Reserve {
    int32_t oldest = 0;
    Bytes needed = 0;
  };

  void Prepare(Direction direction);
  // Gives up once Exceeds().
  void Sweep(Direction direction, Nanos limit);
  // The step takes so long at least.
  void TakesAtLeast(Nanos time) { bound_ = std::max(bound_, time); }
  bool Exceeds() const { return bound_ > limit_; }
  void Decide(int32_t device, Nanos now);
  template <typename Consider>
  void ForCandidates(int32_t device, Nanos now, const Consider& consider) const;
  void Start(int32_t unit, PassKind kind, Nanos now);
  void Deliver(int32_t unit, PassKind kind, int32_t micro_batch, Nanos end);
  template <typename Visit>
  void ForMessages(int32_t unit, PassKind kind, const Visit& visit) const;
  void Occupy(const TaskGraph::Link& link, bool there, Nanos begin);
  void Arrive(int32_t unit, PassKind kind, int32_t micro_batch, Nanos arrival);
  void Wake(int32_t device, Nanos time);
  Reserve ReserveOn(int32_t device) const;
  Nanos Posted(int32_t unit, PassKind kind, int32_t micro_batch) const;
  void Improve(const ListRule& rule, ListResult& result);

  int64_t WorkOf(int32_t unit, int32_t micro_batch) const {
    return static_cast<int64_t>(unit) * graph_->micro_batches + micro_batch;
  }
  Nanos TimeOf(int32_t unit, PassKind kind) const;
  bool SplitsHere(int32_t unit) const { return direction_.split && graph_->units[unit].splits(); }

  ReceivePosting posting_;
  const TaskGraph* graph_ = nullptr;
  Direction direction_;
  double patience_ = 0;
  int64_t work_ = 0;
  LeastTimes own_least_;
  const LeastTimes* least_ = nullptr;
  Nanos limit_ = 0, bound_ = 0;
  DueDates due_;
  Inputs activations_, gradients_;
  std::vector<UnitState> units_;
  std::vector<DeviceState> devices_;
  std::vector<Nanos> link_free_;
  std::vector<Nanos> link_work_;   // Still to be carried, forwards in time.
  std::vector<Event> events_;      // Heap.
  std::vector<TimedPass> passes_;  // In the order in which they started.
};

}  // namespace stagewright
