// When the actions of a running job are asked for out of turn: its pace has changed, or what was
// seen is to be confirmed.
#pragma once

#include "common/base/units.h"

namespace stagewright {

class LookAgain {
 public:
  // Looks are at least so much time of steps apart, so that short steps that vary cost little.
  static constexpr Nanos kApart = kSecond;

  // A step took so long; `changed`: the pace is not what it was (RecentSteps). Each change is one
  // reason to look.
  void NoteStep(Nanos time, bool changed) {
    since_ += time;
    wanted_ |= changed && !changed_;
    changed_ = changed;
  }
  void Want() { wanted_ = true; }
  bool due() const { return wanted_ && since_ >= kApart; }
  // Workers were asked, for whatever reason.
  void NoteAsked() {
    wanted_ = false;
    since_ = 0;
  }

 private:
  Nanos since_ = 0;
  bool wanted_ = false;
  bool changed_ = false;
};

}  // namespace stagewright
