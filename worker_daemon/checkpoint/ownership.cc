#include "worker_daemon/checkpoint/ownership.h"

namespace stagewright {

std::vector<ParameterId> ParametersToWrite(const Graph& graph, const Program& program,
                                           DeviceId device) {
  std::vector<DeviceId> writer(graph.parameters().size());
  for (const ProgramStage& stage : program.stages) {
    for (const auto* nodes : {&stage.nodes, &stage.replicated}) {
      for (NodeId node : *nodes) {
        for (ParameterId id : graph.Parameters(node)) {
          if (!writer[id.index()].valid()) writer[id.index()] = stage.devices.front();
        }
      }
    }
  }
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < writer.size(); ++i) {
    const ParameterId id(i);
    if (writer[i] == device && !graph.parameter(id).data.has_value()) ids.push_back(id);
  }
  return ids;
}

}  // namespace stagewright
