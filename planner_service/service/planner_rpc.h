// stagewright.v1.PlannerService over the front door. Calls only check and queue; the pool's threads
// solve.
#pragma once

#include "planner_service/jobs/planning_pool.h"
#include "planner_service/service/metrics.h"
#include "planner_service/service/rpc.h"
#include "stagewright/v1/planner_service.grpc.pb.h"

namespace stagewright {

class PlannerRpc : public v1::PlannerService::CallbackService {
 public:
  // All outlive the service; `metrics` may be null.
  PlannerRpc(PlanningPool* pool, OpenStreams* streams, PlannerMetrics* metrics)
      : pool_(pool), streams_(streams), metrics_(metrics) {}

  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* context,
                                 const v1::PlanRequest* request,
                                 v1::PlanResponse* response) override;
  grpc::ServerWriteReactor<v1::PlanStreamResponse>* PlanStream(
      grpc::CallbackServerContext* context, const v1::PlanStreamRequest* request) override;
  grpc::ServerUnaryReactor* Validate(grpc::CallbackServerContext* context,
                                     const v1::ValidateRequest* request,
                                     v1::ValidateResponse* response) override;
  grpc::ServerUnaryReactor* Simulate(grpc::CallbackServerContext* context,
                                     const v1::SimulateRequest* request,
                                     v1::SimulateResponse* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override;
  grpc::ServerUnaryReactor* ListPlanners(grpc::CallbackServerContext* context,
                                         const v1::ListPlannersRequest* request,
                                         v1::ListPlannersResponse* response) override;

 private:
  PlanningPool* const pool_;
  OpenStreams* const streams_;
  PlannerMetrics* const metrics_;
};

}  // namespace stagewright
