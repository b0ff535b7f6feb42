#include "tests/planner_service/jobs/small_spec.h"

#include "common/wire/graph_proto.h"
#include "tests/support/graph_builder.h"

namespace stagewright::testing {

v1::JobSpec SmallSpec() {
  GraphBuilder builder("chain");
  Argument x = builder.Feature("x", {16});
  for (int i = 0; i < 4; ++i) x = builder.Linear(x, 16, 16);
  builder.Loss(x, {16});
  v1::JobSpec spec;
  *spec.mutable_graph() = ToProto(builder.Build());
  spec.set_weights_path("w");
  spec.set_data_path("d");
  spec.set_output_path("out");
  spec.set_mini_batch(8);
  spec.set_steps(3);
  spec.set_num_devices(2);
  spec.mutable_plan_options()->set_num_stages(2);
  spec.mutable_plan_options()->set_max_loops(1);
  spec.mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
  spec.mutable_optimizer()->set_learning_rate(0.1);
  return spec;
}

}  // namespace stagewright::testing
