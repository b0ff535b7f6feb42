#include "clients/cli/service/health.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <future>

namespace stagewright::cli {
namespace {

// grpc.health.v1 by hand, whose two messages are shorter than a file of their own would be.
// HealthCheckRequest.service, field 1, in front of its length and text.
constexpr char kService = 0x0a;
// HealthCheckResponse.status, field 1, NOT_SERVING.
constexpr absl::string_view kNotServing("\x08\x02", 2);

grpc::ByteBuffer Question(const std::string& service) {
  grpc::Slice bytes(std::string{kService, static_cast<char>(service.size())} + service);
  return {&bytes, 1};
}

}  // namespace

bool Serves(const Connection& connection, const std::string& service, absl::Duration deadline) {
  grpc::GenericStub stub(connection.channel());
  const grpc::ByteBuffer question = Question(service);
  grpc::ByteBuffer answer;
  const absl::Status asked = connection.Call(deadline, [&](grpc::ClientContext* context) {
    std::promise<grpc::Status> done;
    stub.UnaryCall(context, "/grpc.health.v1.Health/Check", {}, &question, &answer,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  });
  grpc::Slice told;
  if (!asked.ok() || !answer.DumpToSingleSlice(&told).ok()) return true;
  return absl::string_view(reinterpret_cast<const char*>(told.begin()), told.size()) != kNotServing;
}

}  // namespace stagewright::cli
