// What plan_bench times: the rows of the table in docs/benchmarks.md.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright::bench {

struct Finding {
  double seconds = 0;  // The search alone takes this long: see Stopwatch.
  std::string text;    // What it found, for people.
};

// One search, ready to run any number of times.
using Search = std::function<absl::StatusOr<Finding>()>;

// The time since its construction: of this thread's processor or on the wall, whichever is less. A
// search is on one thread, so other work on the machine shows on the wall only.
class Stopwatch {
 public:
  double Seconds() const {
    return std::min(ProcessorSeconds() - processor_,
                    std::chrono::duration<double>(Clock::now() - wall_).count());
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double ProcessorSeconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  Clock::time_point wall_ = Clock::now();
  double processor_ = ProcessorSeconds();
};

// Runs `work`, which returns the text.
template <typename F>
Finding Timed(F&& work) {
  Finding finding;
  const Stopwatch watch;
  finding.text = work();
  finding.seconds = watch.Seconds();
  return finding;
}

struct Row {
  std::string name;      // "graphpipe/mmt/32", of letters that a filter can hold.
  std::string problem;   // For people.
  double must = 0;       // Promised time of the search, in seconds.
  double aim = 0;        // Desired time of the search, in seconds.
  std::string original;  // What the published planner takes; empty where there is none.
  // No search begins after so many seconds of searching.
  double enough = std::numeric_limits<double>::infinity();
  // Loads the input. NOT_FOUND: a profile or graph that is not there.
  std::function<absl::StatusOr<Search>()> prepare;
};

// Searches of whole planners through their interface. `graphs` is the folder of examples/graphs.
std::vector<Row> PlannerRows(const std::string& graphs);

// The default planner on problems of many shapes, as a user asks it.
std::vector<Row> ShapeRows(const std::string& graphs);

// When the default planner tells of a plan within 1 % of what it ends with after twelve times the
// effort, on the same problems.
std::vector<Row> SoonRows(const std::string& graphs);

// The published planners' own problems, by their own objectives.
std::vector<Row> PublishedRows();

// A search whose time should grow gently with the size of the model.
struct Growth {
  std::string planner;
  std::string what;  // "layers" of each branch, or "branches".
  int32_t size = 0;
  std::function<absl::StatusOr<Search>()> prepare;
};
std::vector<Growth> Growths();

}  // namespace stagewright::bench
