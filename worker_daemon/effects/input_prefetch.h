// Gathers inputs of the graph on a thread of its own before passes load them, so that an
// accelerator does not wait for the host to read the data set.
//
// It is told the loads to come, in their order, and gathers up to kAhead of each input that nobody
// has taken. What was gathered is known by the samples it is of, so a load gets it or nothing: what
// was not gathered ahead, or could not be, is left to whoever loads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "common/base/sample_range.h"
#include "common/base/status.h"

namespace stagewright {

// An input for some samples of a mini-batch.
struct InputLoad {
  InputId input;
  std::shared_ptr<const std::vector<int64_t>> batch;  // Indices into the data set.
  SampleRange range;

  std::span<const int64_t> samples() const {
    return std::span(*batch).subspan(static_cast<size_t>(range.begin),
                                     static_cast<size_t>(range.size()));
  }
};

// Thread-safe.
class InputPrefetch {
 public:
  static constexpr int32_t kAhead = 2;

  // Gathers an input for some samples of the data set; must not throw.
  using Gather =
      std::function<absl::StatusOr<at::Tensor>(InputId input, std::span<const int64_t> samples)>;

  // Calls `gather` on its thread only.
  explicit InputPrefetch(Gather gather);

  // Waits for the gather under way, if any.
  ~InputPrefetch();
  InputPrefetch(const InputPrefetch&) = delete;
  InputPrefetch& operator=(const InputPrefetch&) = delete;

  // From now on these are the loads to come. What was gathered for one of them is kept, the rest is
  // dropped. O(loads * inputs).
  void Expect(std::vector<InputLoad> loads) ABSL_LOCKS_EXCLUDED(mutex_);

  // What was gathered for the next load of the input for these samples, after waiting for it if
  // that is under way; loads of the input that come before that one are dropped. Undefined, at
  // once, if it is not expected or not begun: the caller gathers it himself. Undefined, too, if
  // gathering it failed. O(loads).
  at::Tensor Take(InputId input, std::span<const int64_t> samples) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State { kWaiting, kGathering, kGathered };
  struct Entry {
    InputLoad load;
    State state = State::kWaiting;
    at::Tensor gathered;  // kGathered: undefined if that failed.

    bool IsGathered() const { return state == State::kGathered; }
  };
  using Entries = std::deque<std::shared_ptr<Entry>>;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // The next load to gather; null if there is none or the inputs of all are gathered far enough.
  std::shared_ptr<Entry> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Gather gather_;
  absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // Loads to come, in their order.
  // Next may say something else than the last time.
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: uses the members above.
};

}  // namespace stagewright
