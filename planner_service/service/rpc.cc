#include "planner_service/service/rpc.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error_details.h"
#include "stagewright/v1/error_details.pb.h"

namespace stagewright {
namespace {

// Streams last: who comes sooner only finds them open still.
constexpr absl::Duration kRetryStream = absl::Seconds(10);
// Large requests are planned for a while, or refused at once.
constexpr absl::Duration kRetryRoom = absl::Seconds(2);
// Whatever else it is that passes.
constexpr absl::Duration kRetryUnavailable = absl::Seconds(1);

void Add(absl::string_view type, const google::protobuf::Message& detail, v1::ErrorStatus& out) {
  google::protobuf::Any* any = out.add_details();
  any->set_type_url(absl::StrCat("type.googleapis.com/google.rpc.", type));
  detail.SerializeToString(any->mutable_value());
}

v1::ErrorStatus WithDetails(const absl::Status& status, const ErrorDetails& details) {
  v1::ErrorStatus out;
  out.set_code(static_cast<int32_t>(status.code()));
  out.set_message(std::string(status.message()));
  if (!details.reason.empty()) {
    v1::ErrorInfo info;
    info.set_reason(details.reason);
    info.set_domain("stagewright");
    Add("ErrorInfo", info, out);
  }
  if (!details.field.empty()) {
    v1::BadRequest request;
    v1::FieldViolation* violation = request.add_field_violations();
    violation->set_field(details.field);
    violation->set_description(std::string(status.message()));
    Add("BadRequest", request, out);
  }
  if (!details.resource.empty()) {
    v1::ResourceInfo resource;
    resource.set_resource_type(details.resource.substr(0, details.resource.find('/')));
    resource.set_resource_name(details.resource);
    resource.set_description(std::string(status.message()));
    Add("ResourceInfo", resource, out);
  }
  if (details.retry_after.has_value()) {
    const int64_t nanos = absl::ToInt64Nanoseconds(*details.retry_after);
    v1::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(nanos / 1'000'000'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
    Add("RetryInfo", retry, out);
  }
  return out;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  const auto code = static_cast<grpc::StatusCode>(status.code());
  if (status.ok()) return grpc::Status(code, std::string(status.message()));
  ErrorDetails details = DetailsOf(status);
  if (absl::IsUnavailable(status) && !details.retry_after.has_value())
    details.retry_after = kRetryUnavailable;
  const v1::ErrorStatus detailed = WithDetails(status, details);
  if (detailed.details().empty()) return grpc::Status(code, detailed.message());
  return grpc::Status(code, detailed.message(), detailed.SerializeAsString());
}

absl::Status NoRoomForMessage() {
  return WithReason(
      WithRetryAfter(absl::ResourceExhaustedError(
                         "the planner holds as many large requests as it has memory for; try "
                         "again later"),
                     kRetryRoom),
      "REQUEST_MEMORY_FULL");
}

void RefuseCompression(grpc::ServerBuilder& builder) {
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
}

std::unique_ptr<grpc::ServerBuilderOption> WithoutReflection() {
  class Option : public grpc::ServerBuilderOption {
    void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
    void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
      using Reflection = grpc::reflection::ProtoServerReflectionPlugin;
      std::erase_if(*plugins, [](const auto& plugin) {
        return dynamic_cast<const Reflection*>(plugin.get()) != nullptr;
      });
    }
  };
  return std::make_unique<Option>();
}

int64_t OpenStreams::Add(std::function<void()> close, const std::string& owner) {
  {
    absl::MutexLock lock(&mutex_);
    if (!closing_) {
      streams_[next_] = {std::move(close), owner};
      return next_++;
    }
  }
  close();
  return 0;
}

void OpenStreams::Remove(int64_t id) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(id);
}

size_t OpenStreams::CountOf(absl::string_view owner) const {
  return static_cast<size_t>(
      std::count_if(streams_.begin(), streams_.end(),
                    [&](const auto& entry) { return entry.second.owner == owner; }));
}

absl::Status OpenStreams::CheckRoomForWorker() {
  absl::MutexLock lock(&mutex_);
  if (CountOf(kWorkers) <= most_) return absl::OkStatus();
  return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                            "more than ", most_, " workers have streams open; try again later")),
                        kRetryStream);
}

absl::Status OpenStreams::CheckRoom(const std::string& owner) {
  absl::MutexLock lock(&mutex_);
  const auto refuse = [](const auto&... why) {
    return WithRetryAfter(absl::ResourceExhaustedError(
                              absl::StrCat(why..., ": watch fewer jobs, or try again later")),
                          kRetryStream);
  };
  if (CountOf(owner) > most_of_owner_)
    return refuse("you have more than ", most_of_owner_, " streams open");
  if (streams_.size() > most_) return refuse("more than ", most_, " streams are open");
  return absl::OkStatus();
}

void OpenStreams::CloseAll() {
  // Under the lock, so that no stream can be destroyed between being found and being closed.
  absl::MutexLock lock(&mutex_);
  closing_ = true;
  for (auto& [id, stream] : streams_) stream.close();
  streams_.clear();
}

}  // namespace stagewright
