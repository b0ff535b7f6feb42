// Strategies from the wire, judged and explained.
#include <google/protobuf/stubs/logging.h>

#include "common/wire/strategy_proto.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/evaluator/explain.h"
#include "stagewright/v1/strategy.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  static const google::protobuf::LogSilencer silence;  // What it refuses is not news.
  v1::Strategy proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  if (proto.mini_batch() > 1000) return 0;  // A million actions take their time.
  const fuzz::SmallProblem& small = fuzz::Small();
  const Strategy strategy = FromProto(proto);
  const auto judged = Evaluate(small.graph, small.cluster, *small.costs, strategy, {});
  // A deadlock is told with its grid of several lines; everything else in one.
  if (absl::IsFailedPrecondition(judged.status())) return 0;
  fuzz::CheckRefusal(judged.status());
  if (!judged.ok()) return 0;
  const auto explained =
      Explain(small.graph, small.operators, small.cluster, *small.costs, strategy);
  if (!explained.ok()) fuzz::Fail("valid, but: " + explained.status().ToString());
  return 0;
}
