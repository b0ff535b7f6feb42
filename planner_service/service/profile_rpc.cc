#include "planner_service/service/profile_rpc.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/wire/limits.h"
#include "common/wire/profile_proto.h"
#include "planner_service/records/told_of.h"

namespace stagewright {
namespace {

// The number of operators.
absl::StatusOr<int64_t> Import(const v1::ImportProfilesRequest& request, ProfileStore& store) {
  OperatorProfile profile;
  for (const v1::DeviceProfile& device : request.profiles())
    RETURN_IF_ERROR(Merge(device, profile));
  int64_t count = 0;
  for (const auto& [device, operators] : profile.devices)
    count += static_cast<int64_t>(operators.size());
  RETURN_IF_ERROR(ToldOf(store.Write(profile)));
  return count;
}

// A measurement takes minutes; it ends early when the client goes or the server does.
class ProfileCall : public grpc::ServerUnaryReactor {
 public:
  using Ended = std::function<void(const absl::Status&)>;

  // `ended` hears what became of it, before the client does.
  ProfileCall(Profiling* profiling, OpenStreams* streams, const v1::ProfileGraphRequest& request,
              v1::ProfileGraphResponse* response, Ended ended)
      : profiling_(profiling), streams_(streams), response_(response), ended_(std::move(ended)) {
    const auto number = profiling_->Start(
        request,
        [this](absl::StatusOr<v1::ProfileGraphResponse> result) { End(std::move(result)); });
    if (!number.ok()) {
      End(number.status());
      return;
    }
    number_ = *number;
    stream_ = streams_->Add([profiling, number = *number] { profiling->Cancel(number); });
  }

  void OnCancel() override { profiling_->Cancel(number_); }
  void OnDone() override {
    streams_->Remove(stream_);
    delete this;
  }

 private:
  void End(absl::StatusOr<v1::ProfileGraphResponse> result) {
    const absl::Status status = MoveTo(std::move(result), response_);
    ended_(status);
    Finish(ToGrpc(status));
  }

  Profiling* const profiling_;
  OpenStreams* const streams_;
  v1::ProfileGraphResponse* const response_;
  const Ended ended_;
  int64_t number_ = 0;
  int64_t stream_ = 0;
};

}  // namespace

grpc::ServerUnaryReactor* ProfileRpc::Done(grpc::CallbackServerContext* context,
                                           const absl::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* ProfileRpc::ProfileGraph(grpc::CallbackServerContext* context,
                                                   const v1::ProfileGraphRequest* request,
                                                   v1::ProfileGraphResponse* response) {
  const auto ended = [this, context, request,
                      caller = door_->CallerOf(*context)](const absl::Status& status) {
    door_->Audit(*context, caller, "ProfileGraph", request->graph().name(), status);
  };
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) {
    ended(limits);
    return Done(context, limits);
  }
  return new ProfileCall(profiling_, streams_, *request, response, ended);
}

grpc::ServerUnaryReactor* ProfileRpc::ListProfiles(grpc::CallbackServerContext* context,
                                                   const v1::ListProfilesRequest* /*request*/,
                                                   v1::ListProfilesResponse* response) {
  const auto known = profiling_->store().Read();
  if (!known.ok()) return Done(context, ToldOfRead(known.status()));
  for (const auto& [device, operators] : (*known)->devices) {
    v1::ProfileSummary* summary = response->add_profiles();
    summary->set_device_kind(device.kind);
    summary->set_software(device.software);
    summary->set_operators(static_cast<int64_t>(operators.size()));
    std::string first, last;
    for (const auto& [signature, measured] : operators) {
      first = first.empty() ? measured.measured_on : std::min(first, measured.measured_on);
      last = std::max(last, measured.measured_on);
    }
    summary->set_first_measured_on(first);
    summary->set_last_measured_on(last);
  }
  return Done(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ProfileRpc::ExportProfiles(grpc::CallbackServerContext* context,
                                                     const v1::ExportProfilesRequest* /*request*/,
                                                     v1::ExportProfilesResponse* response) {
  const auto known = profiling_->store().Read();
  if (!known.ok()) return Done(context, ToldOfRead(known.status()));
  for (const auto& [device, operators] : (*known)->devices)
    *response->add_profiles() = ToProto(device, operators);
  return Done(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ProfileRpc::ImportProfiles(grpc::CallbackServerContext* context,
                                                     const v1::ImportProfilesRequest* request,
                                                     v1::ImportProfilesResponse* response) {
  const absl::Status limits = CheckLimits(*request);
  const auto operators = limits.ok() ? Import(*request, profiling_->store()) : limits;
  door_->Audit(*context, "ImportProfiles", "profiles", operators.status());
  if (operators.ok()) response->set_operators(*operators);
  return Done(context, operators.status());
}

}  // namespace stagewright
