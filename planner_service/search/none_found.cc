#include "planner_service/search/none_found.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner_service/planner/fit.h"
#include "planner_service/search/stage_oracle.h"

namespace stagewright {
namespace {

// What must fit at least, and what there is.
void AddMemory(const std::string& planner, const Problem& problem, std::string& reason) {
  Bytes memory = 0;
  for (const Device& device : problem.cluster->devices()) memory += device.memory;
  const StageOracle oracle(problem, ModelOrder(problem));
  const int32_t devices = problem.cluster->size();
  absl::StrAppend(&reason, ": parameters, gradients and optimizer state need ",
                  FormatBytes(oracle.At(0, oracle.size()).resident),
                  ", samples in flight come on top, and ",
                  devices == 1 ? std::string("the device has ")
                               : absl::StrCat("the ", devices, " devices together have "),
                  FormatBytes(memory), "; more devices or memory",
                  planner == "auto" ? "" : " or planner 'auto'", " may help");
}

}  // namespace

Outcome NoneFound(const std::string& planner, const Problem& problem, const std::string& scope,
                  const absl::Status& closest) {
  Outcome outcome;
  if (auto reason = WhyNothingFits(problem)) {
    outcome.reason = *std::move(reason);
    return outcome;
  }
  outcome.termination = Termination::kLimit;
  const bool memory = !absl::IsFailedPrecondition(closest);
  outcome.reason = absl::StrCat("planner '", planner, "' found no plan", memory ? " that fits" : "",
                                scope.empty() ? "" : " among ", scope,
                                ", which does not prove that there is none");
  if (memory) AddMemory(planner, problem, outcome.reason);
  if (!closest.message().empty())
    absl::StrAppend(&outcome.reason, "; closest: ", std::string(closest.message()));
  return outcome;
}

}  // namespace stagewright
