// stagewright.v1.ProfileService over Profiling.
#pragma once

#include "planner_service/profiles/profiling.h"
#include "planner_service/service/door.h"
#include "planner_service/service/rpc.h"
#include "stagewright/v1/profile.grpc.pb.h"

namespace stagewright {

class ProfileRpc : public v1::ProfileService::CallbackService {
 public:
  // All outlive the service.
  ProfileRpc(Profiling* profiling, OpenStreams* streams, Door* door)
      : profiling_(profiling), streams_(streams), door_(door) {}

  grpc::ServerUnaryReactor* ProfileGraph(grpc::CallbackServerContext* context,
                                         const v1::ProfileGraphRequest* request,
                                         v1::ProfileGraphResponse* response) override;
  grpc::ServerUnaryReactor* ListProfiles(grpc::CallbackServerContext* context,
                                         const v1::ListProfilesRequest* request,
                                         v1::ListProfilesResponse* response) override;
  grpc::ServerUnaryReactor* ExportProfiles(grpc::CallbackServerContext* context,
                                           const v1::ExportProfilesRequest* request,
                                           v1::ExportProfilesResponse* response) override;
  grpc::ServerUnaryReactor* ImportProfiles(grpc::CallbackServerContext* context,
                                           const v1::ImportProfilesRequest* request,
                                           v1::ImportProfilesResponse* response) override;

 private:
  grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context, const absl::Status& status);

  Profiling* const profiling_;
  OpenStreams* const streams_;
  Door* const door_;
};

}  // namespace stagewright
