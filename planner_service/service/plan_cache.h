// Equal planning questions: those in flight at the same time share one search, and an answer that
// no clock cut short is kept for the next one.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "planner_service/jobs/planning_pool.h"
#include "planner_service/planner/search_context.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {

// Thread-safe. Questions are equal if their bytes are.
class PlanCache {
 public:
  using Deadline = SearchContext::Clock::time_point;
  using Answer = absl::StatusOr<std::shared_ptr<const v1::PlanResponse>>;
  // Called once, without locks, on another thread or at once.
  using Done = std::function<void(const Answer& answer)>;
  using Search =
      std::function<absl::StatusOr<v1::PlanResponse>(const v1::PlanRequest&, SearchContext&)>;
  // How a question was answered.
  enum class Use { kHit, kShared, kMiss };
  using OnUse = std::function<void(Use)>;

  // Keeps at most so many bytes of questions and answers, those that were asked for last.
  PlanCache(Search search, int64_t most_bytes, OnUse on_use = {});

  // The answer, by a search in `pool` if there is none. Shares a search that ends before `deadline`
  // and has at least half of the time until then. Returns a ticket. Errors are answers:
  // RESOURCE_EXHAUSTED of a pool that is full, and those of the search.
  int64_t Ask(PlanningPool& pool, const v1::PlanRequest& request, Deadline deadline, Done done);
  // True if the question was not answered yet: it will not be. A search that nobody waits for ends.
  bool Cancel(int64_t ticket);

  int64_t bytes() const;

 private:
  struct Flight {
    std::string question;
    Deadline deadline;
    SearchContext context;
    std::map<int64_t, Done> waiting;

    Flight(std::string bytes, Deadline until)
        : question(std::move(bytes)), deadline(until), context(until) {}
  };
  struct Kept {
    std::shared_ptr<const v1::PlanResponse> answer;
    int64_t bytes = 0;
    std::list<std::string>::iterator age;
  };

  std::shared_ptr<Flight> FindFlight(const std::string& question, Deadline deadline) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(const std::shared_ptr<Flight>& flight, const v1::PlanRequest& request);
  void Land(const std::shared_ptr<Flight>& flight, const Answer& answer);
  void Keep(const std::string& question, std::shared_ptr<const v1::PlanResponse> answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Search search_;
  const int64_t most_bytes_;
  const OnUse on_use_;
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  std::list<std::string> ages_ ABSL_GUARDED_BY(mutex_);  // Asked for last, first.
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace stagewright
