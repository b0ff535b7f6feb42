// "auto": every planner that fits the problem, and a search of its own from what they find.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// The default planner. It runs the other planners within a share of the time, builds looped stages
// on the model's DAG, improves the most promising by local search against a list schedule, and has
// the evaluator judge what comes out. Its answer is never slower than that of a member it ran. With
// the answer comes the best sequential pipeline it knows.
std::unique_ptr<Planner> MakeAutoPlanner();

}  // namespace stagewright
