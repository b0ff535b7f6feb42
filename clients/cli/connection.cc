#include "clients/cli/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/channel/unreached.h"
#include "stagewright/v1/error_details.pb.h"

namespace stagewright::cli {
namespace {

// What the planner says of when the call may succeed.
std::string RetryIn(const grpc::Status& status) {
  v1::ErrorStatus told;
  if (!told.ParseFromString(status.error_details())) return "";
  for (const auto& detail : told.details()) {
    v1::RetryInfo retry;
    if (absl::EndsWith(detail.type_url(), "/google.rpc.RetryInfo") &&
        retry.ParseFromString(detail.value())) {
      const absl::Duration after = absl::Seconds(retry.retry_delay().seconds()) +
                                   absl::Nanoseconds(retry.retry_delay().nanos());
      return absl::StrCat(" (retry in ", absl::ToDoubleSeconds(after), " s)");
    }
  }
  return "";
}

// Whether the deadline of a call passed without any answer: in gRPC's words, while a planner that
// had too little time says for what.
bool IsSilence(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
         status.error_message() == "Deadline Exceeded" && status.error_details().empty();
}

// Whether a web server answered, in gRPC's words.
bool IsNoPlanner(const grpc::Status& status) {
  return status.error_details().empty() &&
         absl::StartsWith(status.error_message(), "Received http2 header with status");
}

}  // namespace

Connection::Connection(const std::string& address, const ChannelSecurity& security)
    : address_(address), security_(security) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  auto opened = OpenChannel(address, security, arguments);
  channel_status_ = opened.status();
  // Without credentials it is a channel whose calls all fail.
  channel_ = opened.ok() ? *opened : grpc::CreateChannel(address, nullptr);
  planner_ = v1::PlannerService::NewStub(channel_);
  jobs_ = v1::JobService::NewStub(channel_);
  profiles_ = v1::ProfileService::NewStub(channel_);
  topology_ = v1::TopologyService::NewStub(channel_);
}

std::string FreshId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x", random(), random(), random());
}

absl::Status Connection::Translate(const grpc::Status& status) const {
  RETURN_IF_ERROR(channel_status_);
  if (status.ok()) return absl::OkStatus();
  if (IsSilence(status))
    return absl::UnavailableError(absl::StrCat("no planner answers at ", address_, " in time"));
  // A planner that answers so says when to try again; others are not reached.
  if (IsNoPlanner(status) ||
      (status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty())) {
    return absl::UnavailableError(
        absl::StrCat("no planner answers at ", address_, ": ",
                     WithAdvice(status.error_message(), address_, security_)));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(status.error_message(), RetryIn(status)));
}

}  // namespace stagewright::cli
