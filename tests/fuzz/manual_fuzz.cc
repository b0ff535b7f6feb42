// Hand-written plans, from their JSON to their judgement.
#include "common/cost/parameters.h"
#include "planner_service/planners/baselines/baselines.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  const fuzz::SmallProblem& small = fuzz::Small();
  PlanOptions options;
  options.manual = fuzz::Text(data, size);
  SearchContext context;
  const auto outcome =
      MakeManualPlanner()->Solve({&small.graph, &small.operators, &small.cluster, small.costs.get(),
                                  fuzz::kMiniBatch, Optimizer::kAdam},
                                 options, context);
  // A deadlock is told with its grid of several lines; everything else in one.
  const std::string message(outcome.status().message());
  if (message.find("deadlock") == std::string::npos) fuzz::CheckRefusal(outcome.status());
  return 0;
}
