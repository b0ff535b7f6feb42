// The state machine of one section of a device's program. It alone knows issue order, dependencies
// and memory; the simulator gives it a clock, the worker's engine gives it effects, tests give it
// neither (design: Cursor).
//
// Not thread-safe. An operation takes O(r + d log d): r ready actions (at most one per lane), d
// dependents of the one that finished.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/units.h"
#include "common/program/program.h"

namespace stagewright {

class Cursor {
 public:
  // `section` must outlive the cursor. REQUIRES: every index in `after` is in the section (CheckIds
  // in validate.h). O(n).
  // Actions in `held`, each named once, wait for Release besides.
  explicit Cursor(const std::vector<ProgramAction>& section, const std::vector<int32_t>& held = {});

  // Indices of the actions that may start now, ascending: each is the first unstarted one of its
  // lane, its lane is idle and everything in its `after` has finished. The reference is valid until
  // the next Start or Finish; copy it to start actions while walking it.
  const std::vector<int32_t>& Ready() const { return ready_; }
  // REQUIRES: `index` is ready.
  void Start(int32_t index);
  // REQUIRES: `index` was started and not finished. Returns the actions that became ready,
  // ascending; the reference is valid until the next Finish or Reach. Marks of the action that were
  // not reached are now.
  const std::vector<int32_t>& Finish(int32_t index);

  // A backward pass has come to the mark at `node` (PassMark). Returns the actions that became
  // ready, ascending, as Finish does; none if the mark was reached before. REQUIRES: `index` is
  // running. O(d).
  const std::vector<int32_t>& Reach(int32_t index, int32_t node);

  // What a held action waited for outside the section has happened. Returns whether the action
  // became ready. REQUIRES: `index` is held.
  bool Release(int32_t index);

  bool done() const { return finished_ == static_cast<int32_t>(section_->size()); }
  int32_t finished() const { return finished_; }
  bool finished(int32_t index) const { return state_[index] == State::kFinished; }
  // Bytes acquired by started actions and not yet released, and their maximum so far. Without
  // resident bytes.
  Bytes memory() const { return memory_; }
  Bytes peak_memory() const { return peak_memory_; }

 private:
  enum class State : uint8_t { kWaiting, kReady, kRunning, kFinished };

  // What waits for an action: for its end, or for one of its marks.
  struct Dependent {
    static constexpr int32_t kEnd = -1;
    static constexpr int32_t kReached = -2;
    int32_t action = 0;
    int32_t mark = kEnd;  // The node of the mark; kReached: waits no more.
  };

  bool Arrive(int32_t index);  // One of those it waits for is there.

  const std::vector<ProgramAction>* section_;
  std::vector<int32_t> missing_;  // Unfinished predecessors, the lane's previous action included.
  std::vector<int32_t> dependents_begin_;  // By index, into dependents_.
  std::vector<Dependent> dependents_;
  std::vector<State> state_;
  std::vector<int32_t> ready_;         // Sorted.
  std::vector<int32_t> became_ready_;  // What Finish and Reach return.
  int32_t finished_ = 0;
  Bytes memory_ = 0;
  Bytes peak_memory_ = 0;
};

}  // namespace stagewright
