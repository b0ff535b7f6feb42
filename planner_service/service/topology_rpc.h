// stagewright.v1.TopologyService over the registry and the link prober.
#pragma once

#include "planner_service/links/link_prober.h"
#include "planner_service/registry/worker_registry.h"
#include "planner_service/service/door.h"
#include "stagewright/v1/links.grpc.pb.h"

namespace stagewright {

class TopologyRpc : public v1::TopologyService::CallbackService {
 public:
  // All outlive the service.
  TopologyRpc(WorkerRegistry* registry, LinkProber* links, Door* door)
      : registry_(registry), links_(links), door_(door) {}

  grpc::ServerUnaryReactor* MeasureTopology(grpc::CallbackServerContext* context,
                                            const v1::MeasureTopologyRequest* request,
                                            v1::MeasureTopologyResponse* response) override;

 private:
  WorkerRegistry* const registry_;
  LinkProber* const links_;
  Door* const door_;
};

}  // namespace stagewright
