// Work: a device does one thing at a time, and all of it has to be done.
#pragma once

#include <vector>

#include "planner_service/evaluator/bounds/least_costs.h"

namespace stagewright {

// What a device of each kind is charged for a nanosecond of work, >= 0; 1 summed over all devices.
using KindWeights = std::vector<double>;

// A thing that some device has to do; the time by kind, infinite where it cannot.
using WorkItem = std::vector<double>;

struct WorkBound {
  double time = 0;      // ns.
  KindWeights weights;  // Those that prove it.
  double updates = 0;   // What the updates of parameters add to it.
};

// docs/lower-bound.md, "Work". O(items * kinds^2).
WorkBound BoundWork(const BoundProblem& problem);

// What an item is charged at least.
double Charged(const BoundProblem& problem, const WorkItem& item, const KindWeights& weights);

}  // namespace stagewright
