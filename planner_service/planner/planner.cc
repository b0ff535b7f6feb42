#include "planner_service/planner/planner.h"

#include "common/base/check.h"

namespace stagewright {

const char* TerminationName(Termination termination) {
  switch (termination) {
    case Termination::kOptimal:
      return "optimal";
    case Termination::kFeasible:
      return "feasible";
    case Termination::kInfeasible:
      return "infeasible";
    case Termination::kLimit:
      return "limit";
  }
  CHECK(false);
}

}  // namespace stagewright
