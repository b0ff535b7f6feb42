// The planner as the CLI sees it: one channel, blocking calls with deadlines, errors as
// absl::Status.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "clients/cli/globals.h"
#include "common/base/status.h"
#include "common/channel/channel.h"
#include "common/clock/steady_now.h"
#include "stagewright/v1/job_service.grpc.pb.h"
#include "stagewright/v1/links.grpc.pb.h"
#include "stagewright/v1/planner_service.grpc.pb.h"
#include "stagewright/v1/profile.grpc.pb.h"

namespace stagewright::cli {

class Connection {
 public:
  // HOST:PORT. Does not connect yet: errors of OpenChannel are those of the first call.
  Connection(const std::string& address, const ChannelSecurity& security);
  explicit Connection(const Globals& globals)
      : Connection(globals.planner_address, globals.security) {}

  v1::PlannerService::Stub& planner() { return *planner_; }
  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::ProfileService::Stub& profiles() { return *profiles_; }
  v1::TopologyService::Stub& topology() { return *topology_; }
  // For calls of services that have no stub here; Call runs them, too.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // One unary call: Call(deadline, [&](grpc::ClientContext* c) { return stub.F(c, request,
  // &response); }). An unreachable planner is UNAVAILABLE and names the address.
  template <typename F>
  absl::Status Call(absl::Duration deadline, F&& call) const {
    RETURN_IF_ERROR(channel_status_);
    grpc::ClientContext context;
    context.set_deadline(ClockIn(deadline));
    return Translate(call(&context));
  }
  absl::Status Translate(const grpc::Status& status) const;

 private:
  const std::string address_;
  const ChannelSecurity security_;
  absl::Status channel_status_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PlannerService::Stub> planner_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ProfileService::Stub> profiles_;
  std::unique_ptr<v1::TopologyService::Stub> topology_;
};

// Distinguishes a submission from any other, wherever it is made.
std::string FreshId();

}  // namespace stagewright::cli
