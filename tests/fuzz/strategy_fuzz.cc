// Strategies from the wire, judged and explained.
#include "common/wire/strategy_proto.h"
#include "planner_service/planner/front_door.h"
#include "stagewright/v1/strategy.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  v1::Strategy proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  const PlanRequest& request = fuzz::Small().request;
  const Strategy strategy = FromProto(proto);
  const auto judged = JudgeStrategy(request, strategy, "given");
  // A deadlock is told with its grid of several lines; everything else in one.
  if (absl::IsFailedPrecondition(judged.status())) return 0;
  fuzz::CheckRefusal(judged.status());
  if (!judged.ok()) return 0;
  const auto explained = ExplainStrategy(request, strategy, SearchContext());
  if (!explained.ok()) fuzz::Fail("valid, but: " + explained.status().ToString());
  return 0;
}
