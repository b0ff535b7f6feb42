#include "tests/clients/cli/view/branched_plan.h"

#include <vector>

namespace stagewright::cli {
namespace {

void AddStage(v1::Plan& plan, std::vector<int32_t> nodes, std::vector<int32_t> devices) {
  v1::Stage* stage = plan.mutable_strategy()->add_stages();
  for (int32_t node : nodes) stage->add_nodes(node);
  for (int32_t device : devices) stage->add_devices(device);
  stage->set_micro_batch(2);
  stage->set_in_flight(4);
  stage->set_k(1);
  plan.mutable_evaluation()->add_stages()->set_in_flight(4);
}

void AddEdge(v1::Plan& plan, int32_t from, int32_t to) {
  v1::StageEdge* edge = plan.mutable_strategy()->add_edges();
  edge->set_from(from);
  edge->set_to(to);
}

}  // namespace

v1::PlanResponse BranchedPlan() {
  v1::PlanResponse response;
  response.set_termination(v1::TERMINATION_FEASIBLE);
  v1::Plan& plan = *response.mutable_best();
  plan.mutable_strategy()->set_mini_batch(8);
  AddStage(plan, {0, 1, 2}, {2, 0, 1});
  AddStage(plan, {3, 4}, {3});
  AddStage(plan, {5, 6}, {4});
  AddEdge(plan, 0, 2);
  AddEdge(plan, 1, 2);
  plan.mutable_evaluation()->set_depth(2);
  plan.mutable_evaluation()->set_iteration_ns(2'000'000);
  return response;
}

PlanContext BranchedNames() {
  return {"net",
          {"n0", "n1", "n2", "n3", "n4", "n5", "n6"},
          {"a.0", "a.1", "a.2", "b.0", "b.0", "", ""},
          {"node0/gpu0", "node0/gpu1", "node0/gpu2", "node0/gpu3", "node1/gpu0"}};
}

}  // namespace stagewright::cli
