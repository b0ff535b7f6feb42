#include "planner_service/service/topology_rpc.h"

#include <vector>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/wire/topology_proto.h"
#include "planner_service/jobs/job_cluster.h"
#include "planner_service/jobs/job_links.h"
#include "planner_service/service/rpc.h"

namespace stagewright {
namespace {

absl::Status Describe(const std::vector<RegisteredDevice>& devices, const LinkTable& table,
                      v1::MeasureTopologyResponse& response) {
  if (devices.empty()) return absl::FailedPreconditionError("no worker is connected");
  ASSIGN_OR_RETURN(const Cluster cluster, JobCluster(devices, table));
  *response.mutable_cluster() = ToProto(cluster);
  *response.mutable_measured() = ToProto(table);
  response.set_summary(LinkSummary(devices, table));
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* TopologyRpc::MeasureTopology(grpc::CallbackServerContext* context,
                                                       const v1::MeasureTopologyRequest* request,
                                                       v1::MeasureTopologyResponse* response) {
  if (request->again()) {
    links_->MeasureAgain(SteadyNow());
    door_->Audit(*context, "MeasureTopology", "links", absl::OkStatus());
  }
  const LinkProber::Figures figures = links_->figures();
  const absl::Status status =
      Describe(registry_->Devices(/*free_only=*/false), figures.table, *response);
  response->set_pending(figures.pending);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace stagewright
