// Hand-written plans, from their JSON to their judgement.
#include "planner_service/planner/front_door.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  PlanRequest request = fuzz::Small().request;
  request.planner = kManualPlanner;
  request.options.manual = fuzz::Text(data, size);
  SearchContext context;
  fuzz::CheckRefusal(SolvePlan(request, context).status());
  return 0;
}
