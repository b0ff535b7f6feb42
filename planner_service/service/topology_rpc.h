// stagewright.v1.TopologyService over the registry and the link prober.
#pragma once

#include "planner_service/links/link_prober.h"
#include "planner_service/registry/worker_registry.h"
#include "stagewright/v1/links.grpc.pb.h"

namespace stagewright {

class TopologyRpc : public v1::TopologyService::CallbackService {
 public:
  // Both outlive the service.
  TopologyRpc(WorkerRegistry* registry, LinkProber* links) : registry_(registry), links_(links) {}

  grpc::ServerUnaryReactor* MeasureTopology(grpc::CallbackServerContext* context,
                                            const v1::MeasureTopologyRequest* request,
                                            v1::MeasureTopologyResponse* response) override;

 private:
  WorkerRegistry* const registry_;
  LinkProber* const links_;
};

}  // namespace stagewright
