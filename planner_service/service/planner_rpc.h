// stagewright.v1.PlannerService over the front door. Calls only check and queue; the pool's threads
// solve.
#pragma once

#include <functional>
#include <utility>

#include "planner_service/jobs/planning_pool.h"
#include "planner_service/profiles/profile_store.h"
#include "planner_service/service/door.h"
#include "planner_service/service/metrics.h"
#include "planner_service/service/plan_cache.h"
#include "planner_service/service/rpc.h"
#include "stagewright/v1/planner_service.grpc.pb.h"

namespace stagewright {

// What GetServer says; `version` and start time apart.
using ServerFigures = std::function<void(v1::GetServerResponse&)>;

// Plan is raw: an answer that is kept is looked up and sent as bytes. Who calls was checked before
// (door.h), as for every call.
class PlannerRpc
    : public v1::PlannerService::WithRawCallbackMethod_Plan<v1::PlannerService::CallbackService> {
 public:
  // All outlive the service; `metrics` may be null.
  PlannerRpc(const Door* door, PlanningPool* pool, PlanCache* cache, OpenStreams* streams,
             PlannerMetrics* metrics, ServerFigures figures, const ProfileStore* profiles)
      : door_(door),
        pool_(pool),
        cache_(cache),
        streams_(streams),
        metrics_(metrics),
        figures_(std::move(figures)),
        profiles_(profiles) {}

  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
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
  grpc::ServerUnaryReactor* GetServer(grpc::CallbackServerContext* context,
                                      const v1::GetServerRequest* request,
                                      v1::GetServerResponse* response) override;

 protected:
  const Door* const door_;

 private:
  PlanningPool* const pool_;
  PlanCache* const cache_;
  OpenStreams* const streams_;
  PlannerMetrics* const metrics_;
  const ServerFigures figures_;
  const ProfileStore* const profiles_;
};

// One search for a Plan call, counted unless `metrics` is null.
absl::StatusOr<PlanCache::Found> SearchPlan(const v1::PlanRequest& request, SearchContext& context,
                                            const ProfileStore& profiles, PlannerMetrics* metrics);

}  // namespace stagewright
