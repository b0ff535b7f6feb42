// Runs of a job that ended too early: how long the next one waits, and when there had better be
// none.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace stagewright {

// A job whose runs ended so often in a row for the same cause, none a step further than any before,
// is not started again.
inline constexpr int kMostAlike = 3;
// After a run without such a step the next one waits, after each further one twice as long, at most
// so long.
inline constexpr absl::Duration kFirstBackOff = absl::Seconds(1);
inline constexpr absl::Duration kLongestBackOff = absl::Minutes(1);

class Setbacks {
 public:
  // A run has ended because of `cause`, equal texts for equal causes, after `step` steps of the
  // job. One that `may_pass` by itself makes no loop, however often it comes.
  void Note(const std::string& cause, int64_t step, bool may_pass = false);

  // The last so many ended alike, without progress.
  bool Loops() const { return alike_ >= kMostAlike; }
  // How long the next run waits. None if the last one had made progress.
  absl::Duration BackOff() const;

 private:
  int64_t furthest_ = -1;  // Steps that any run has done.
  int fruitless_ = 0;      // Runs in a row without progress.
  int alike_ = 0;          // The last ones among them that had this cause.
  std::string cause_;
};

}  // namespace stagewright
