// What plan_bench times: the rows of the table in docs/benchmarks.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright::bench {

struct Finding {
  double seconds = 0;  // Of the search alone.
  std::string text;    // What it found, for people.
};

// One search, ready to run any number of times.
using Search = std::function<absl::StatusOr<Finding>()>;

// Runs `work`, which returns the text.
template <typename F>
Finding Timed(F&& work) {
  Finding finding;
  const auto start = std::chrono::steady_clock::now();
  finding.text = work();
  finding.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return finding;
}

struct Row {
  std::string name;      // "graphpipe/mmt/32", of letters that a filter can hold.
  std::string problem;   // For people.
  double must = 0;       // Seconds: the promise,
  double aim = 0;        // and the wish.
  std::string original;  // What the published planner takes; empty where there is none.
  // Loads the input. NOT_FOUND: a profile or graph that is not there.
  std::function<absl::StatusOr<Search>()> prepare;
};

// Searches of whole planners through their interface. `graphs` is the folder of examples/graphs.
std::vector<Row> PlannerRows(const std::string& graphs);

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
