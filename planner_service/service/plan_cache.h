// Equal planning questions: those in flight at the same time share one search, and an answer that
// no clock cut short is kept, as it is sent, for the next one.
//
// An answer depends on its question and on what was measured of operators, which plans name in
// their bases; on nothing else that the service knows, not even on the workers that are there: a
// question brings its own cluster. What was measured has a version, and an answer of another one is
// no answer any more.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "planner_service/jobs/planning_pool.h"
#include "planner_service/planner/search_context.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {

// Thread-safe. A question is an encoded PlanRequest, and equal to another if its bytes are: whoever
// asks again encodes it again as before, and one that is encoded otherwise is only searched anew.
class PlanCache {
 public:
  using Deadline = SearchContext::Clock::time_point;
  // An encoded PlanResponse. Copies share its bytes.
  using Answer = absl::StatusOr<grpc::ByteBuffer>;
  // Called once, without locks, on another thread or at once.
  using Done = std::function<void(const Answer& answer)>;
  // What a search found, and the version of the measurements that it names: absent if they could
  // not be read, and the answer is then not kept.
  struct Found {
    v1::PlanResponse response;
    std::optional<int64_t> version;
  };
  using Search = std::function<absl::StatusOr<Found>(const v1::PlanRequest&, SearchContext&)>;
  // The version of what is measured now; cheap.
  using Version = std::function<int64_t()>;
  // How a question was answered.
  enum class Use { kHit, kShared, kMiss };
  using OnUse = std::function<void(Use)>;

  // Keeps at most so many bytes of questions and answers, those that were asked for last.
  PlanCache(Search search, Version version, int64_t most_bytes, OnUse on_use = {});

  // The answer that is kept, if there is one: whoever asks need not read the question.
  std::optional<grpc::ByteBuffer> Find(absl::string_view question);
  // The answer, by a search in `pool` in the caller's turn if there is none. Shares a search that
  // ends before `deadline` and has at least half of the time until then, in the turn of whichever
  // caller comes first. Returns a ticket. Errors are answers: RESOURCE_EXHAUSTED of a pool that is
  // full, and those of the search. REQUIRES: `question` is `request`, encoded.
  int64_t Ask(PlanningPool& pool, std::string caller, absl::string_view question,
              v1::PlanRequest request, Deadline deadline, const Done& done);
  // True if the question was not answered yet: it will not be. A search that nobody waits for ends.
  bool Cancel(int64_t ticket);

  int64_t bytes() const;

 private:
  struct Waiter {
    std::string caller;
    Done done;
  };
  struct Flight {
    const std::string question;
    const v1::PlanRequest request;
    const Deadline deadline;
    SearchContext context;
    std::map<int64_t, Waiter> waiting;  // By ticket.
    bool begun = false;  // Its search, or it was given up: further turns have nothing to do.

    Flight(absl::string_view bytes, v1::PlanRequest read, Deadline until)
        : question(bytes), request(std::move(read)), deadline(until), context(until) {}
  };
  struct Kept {
    std::string question;
    grpc::ByteBuffer answer;
    int64_t version = 0;

    int64_t bytes() const;
  };
  using Ages = std::list<Kept>;

  std::optional<grpc::ByteBuffer> FindKept(absl::string_view question)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Flight> FindFlight(absl::string_view question, Deadline deadline) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(const std::shared_ptr<Flight>& flight);
  // That a caller's turn will not come; others wait on.
  void LeaveQueue(const std::shared_ptr<Flight>& flight, const std::string& caller,
                  const absl::Status& full);
  void Land(const std::shared_ptr<Flight>& flight, const Answer& answer);
  void Keep(Kept kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Ages::iterator kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(Use use) const;

  const Search search_;
  const Version version_;
  const int64_t most_bytes_;
  const OnUse on_use_;
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  Ages kept_ ABSL_GUARDED_BY(mutex_);  // Asked for last, first.
  // The keys are the questions of `kept_`.
  absl::flat_hash_map<absl::string_view, Ages::iterator> by_question_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace stagewright
