// The Cursor over sections that follow each other in every lane without a barrier (program.h):
// what runs when, while an asynchronous program is run for many steps, without writing it out.
//
// Over the sections prologue, body, ..., body, epilogue it lets run what one Cursor would over
// Unroll's body (unroll.h), as long as a section is appended when an action of the one before it
// starts.
//
// Not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "common/program/cursor.h"
#include "common/program/program.h"

namespace stagewright {

// An action of a run: its section, counted from 0 in the order of Append, and index there.
struct RunAction {
  int64_t section = 0;
  int32_t index = 0;
  friend auto operator<=>(const RunAction&, const RunAction&) = default;
};

class RunCursor {
 public:
  // Adds a section after all others; `section` must outlive the cursor. Returns the actions that
  // are ready. O(n).
  std::vector<RunAction> Append(const std::vector<ProgramAction>& section);

  // As those of Cursor.
  void Start(RunAction action);
  std::vector<RunAction> Finish(RunAction action);
  std::vector<RunAction> Reach(RunAction action, int32_t node);

  int64_t sections() const { return first_ + static_cast<int64_t>(parts_.size()); }
  bool done() const { return parts_.empty(); }  // All sections are.
  // REQUIRES: the section was appended.
  bool done(int64_t section) const;

 private:
  bool finished(RunAction action) const;
  Cursor& CursorOf(int64_t section) { return parts_[static_cast<size_t>(section - first_)]; }

  int64_t first_ = 0;  // Section of parts_.front(); those before it are done and forgotten.
  std::deque<Cursor> parts_;
  std::map<LaneKey, RunAction> last_;          // Each lane's so far.
  std::map<RunAction, RunAction> successors_;  // In a later section, by the one of the same lane
                                               // that it waits for.
};

}  // namespace stagewright
