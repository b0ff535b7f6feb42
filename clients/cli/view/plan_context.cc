#include "clients/cli/view/plan_context.h"

namespace stagewright::cli {

PlanContext ContextOf(const v1::Graph& graph, const v1::Plan& plan) {
  PlanContext context{graph.name(), {}, {}, {}};
  for (const v1::Node& node : graph.nodes()) {
    context.node_names.push_back(node.name());
    context.node_modules.push_back(node.module());
  }
  for (const v1::DeviceReport& device : plan.evaluation().devices()) {
    if (device.device() >= static_cast<int32_t>(context.device_names.size())) {
      context.device_names.resize(device.device() + 1);
    }
    context.device_names[device.device()] = device.name();
  }
  return context;
}

}  // namespace stagewright::cli
