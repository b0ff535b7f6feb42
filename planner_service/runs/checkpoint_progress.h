// Checkpoints of a run: when one is due by the clock, and what devices have written of each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/units.h"
#include "common/training/checkpoint_policy.h"

namespace stagewright {

// A file of a checkpoint, as its manifest lists it.
struct WrittenFile {
  std::string name;
  Bytes bytes = 0;
  uint32_t crc32 = 0;
};

// A device's share of a checkpoint.
struct WrittenShare {
  int32_t device = 0;
  int64_t step = 0;
  std::vector<WrittenFile> files;
  std::string error;     // Why it is not there; empty if it is.
  bool skipped = false;  // The error is of no concern.
  bool late = false;     // It was announced too late.
};

// A checkpoint of which every device has said what became of its share.
struct WrittenCheckpoint {
  int64_t step = 0;
  std::vector<WrittenFile> files;
  std::string error;     // The first one's; empty if it is whole.
  bool skipped = false;  // A share was skipped.
};

// How far ahead a step is named to workers, so that all hear of it in time.
int64_t StepsAhead(Nanos step_time);

class CheckpointProgress {
 public:
  // For so many devices. The first checkpoint is due so long after `begun`; `every` 0: none is due
  // by the clock.
  CheckpointProgress(size_t devices, absl::Duration every, absl::Time begun)
      : devices_(devices), every_(every), last_(begun) {}
  // Training begins now.
  void Begin(absl::Time now) { last_ = now; }

  // The step after which all are to save, if it is time to tell them: far enough after `step` that
  // all hear of it in time, and before the job ends (`total_steps`; 0: unknown).
  std::optional<int64_t> Announce(int64_t step, Nanos step_time, int64_t total_steps,
                                  absl::Time now);

  // The same, at once, for one after which all devices wait: after a step that no policy names.
  // Nothing if the job ends first.
  std::optional<int64_t> AnnounceHold(int64_t step, Nanos step_time, int64_t total_steps,
                                      const CheckpointPolicy* policy);
  // The step that was named to workers and is not written yet; 0: none.
  int64_t announced() const { return announced_; }
  // The step after which devices wait; 0: none.
  int64_t hold() const { return hold_; }
  void EndHold() { hold_ = 0; }
  // The next one lies further ahead: some device was told of this one too late.
  void NoteLate();

  // The checkpoint if this was its last share. A share that is told again, or is of an older
  // checkpoint than the last whole one, changes nothing.
  std::optional<WrittenCheckpoint> Add(const WrittenShare& share, absl::Time now);
  // Whether a device has skipped that one, so that nobody minds what else becomes of it.
  bool IsSkipped(int64_t step) const;
  // The newest checkpoint whose shares are all there, until its manifest is written, or cannot be.
  const std::optional<WrittenCheckpoint>& without_manifest() const { return without_manifest_; }
  void EndManifest(int64_t step);

 private:
  struct Shares {
    std::set<int32_t> devices;
    WrittenCheckpoint written;
  };

  size_t devices_;
  absl::Duration every_;
  absl::Time last_;                   // When the last one was written or the run began.
  std::map<int64_t, Shares> shares_;  // By step.
  int64_t newest_ = 0;                // Step of the last whole checkpoint; 0: none.
  std::set<int64_t> failed_;          // Steps after it whose checkpoints failed.
  std::optional<WrittenCheckpoint> without_manifest_;
  int64_t announced_ = 0;  // Step; 0: none.
  int64_t hold_ = 0;       // The same.
  // How often the distance of announcements was doubled, because some came too late.
  int doublings_ = 0;
};

}  // namespace stagewright
