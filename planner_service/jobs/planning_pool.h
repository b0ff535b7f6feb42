// A fixed number of threads for planning and a bounded queue in front of them: a full queue refuses
// instead of growing. Callers take turns, and share the queue: whoever asks for much waits for
// himself. One thread more serves whom the others keep waiting, and no caller has more of them than
// there are besides: long searches of one caller do not stop those of others. The threads have a
// lower priority than others of the process: a search takes a whole core for seconds, and calls,
// heartbeats and jobs need theirs for a moment at once.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace stagewright {

// Thread-safe.
class PlanningPool {
 public:
  // How much nicer (setpriority) the threads are than who made the pool; those of plans that nobody
  // waits for are nicer still.
  static constexpr int kNicer = 10, kNicest = 15;
  // A caller of whom nothing runs and who has waited for so long gets the thread that is kept for
  // this.
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  using GiveUp = std::function<void(const absl::Status&)>;
  struct Work {
    std::string caller;  // It runs in this one's turn.
    std::function<void()> run;
    // Called instead of `run` with a status as Submit's, once, by a later Submit's thread without
    // locks of the pool, if it has to leave the queue again. Empty: it never has to.
    GiveUp give_up;
    // Whether nobody waits for it any more: it is then given up before all others where the queue
    // is full. Asked under the pool's lock. Empty: somebody does.
    std::function<bool()> is_over;
  };

  PlanningPool(int threads, int queue_limit, int nicer = kNicer,
               absl::Duration patience = kPatience);
  // Runs what is queued, then joins.
  ~PlanningPool();

  // Runs it after what its caller has submitted before, in turn with other callers. A full queue is
  // left by what nobody waits for; if there is no such thing, by the newest of the caller with the
  // most in it, if that one has two more than this; else RESOURCE_EXHAUSTED names the limit.
  // O(queue_limit^2).
  absl::Status Submit(Work work);
  // What nobody in particular asks for: such work shares a turn, and never has to leave.
  absl::Status Submit(std::function<void()> run) { return Submit({"", std::move(run), {}, {}}); }
  int queued() const;
  // Works that were refused, or had to leave.
  int64_t rejected() const;

 private:
  struct Waiting {
    Work work;
    absl::Time since;
  };
  using Queue = std::list<Waiting>;
  using Turns = std::list<std::string>;

  void Run();
  void RunForThoseWhoWait();
  bool IsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The caller whose turn it is; the end if each has as many works running as it may.
  Turns::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One of whom nothing runs, and who has waited for long enough; the end if there is none.
  Turns::iterator WhoHasWaited() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The end of the queue if none has to.
  Queue::iterator WhoLeavesFor(absl::string_view caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out of the queue what is over, and says how to give it up.
  std::vector<GiveUp> TakeWhatIsOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes one out, and with the last of its caller that one's turn.
  Work Take(Queue::iterator waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Their first work, which then counts as running until RunAndEnd has run it.
  Work TakeOf(Turns::iterator caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Queue::iterator FirstOf(absl::string_view caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunAndEnd(const Work& work) ABSL_LOCKS_EXCLUDED(mutex_);

  const int num_threads_;  // Without the one that is kept.
  const int queue_limit_;
  const int nicer_;
  const absl::Duration patience_;
  mutable absl::Mutex mutex_;
  Queue queue_ ABSL_GUARDED_BY(mutex_);  // As they came.
  Turns turns_ ABSL_GUARDED_BY(mutex_);  // Callers in the queue, the next first.
  absl::flat_hash_map<std::string, int> running_ ABSL_GUARDED_BY(mutex_);  // Works by caller.
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace stagewright
