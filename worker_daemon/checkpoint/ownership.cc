#include "worker_daemon/checkpoint/ownership.h"

#include <algorithm>

namespace stagewright {

std::vector<ParameterId> StateOfStage(const Graph& graph, const ProgramStage& stage) {
  std::vector<ParameterId> ids;
  for (const auto* nodes : {&stage.nodes, &stage.replicated}) {
    for (NodeId node : *nodes)
      ids.insert(ids.end(), graph.Parameters(node).begin(), graph.Parameters(node).end());
  }
  for (const StateUpdate& update : graph.state_updates()) {
    if (std::find(stage.nodes.begin(), stage.nodes.end(), update.value.node) != stage.nodes.end())
      ids.push_back(update.parameter);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<ParameterId> ParametersToWrite(const Graph& graph, const Program& program,
                                           DeviceId device) {
  std::vector<DeviceId> writer(graph.parameters().size());
  for (const ProgramStage& stage : program.stages) {
    for (ParameterId id : StateOfStage(graph, stage)) {
      if (!writer[id.index()].valid()) writer[id.index()] = stage.devices.front();
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
