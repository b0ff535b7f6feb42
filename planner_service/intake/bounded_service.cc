#include "planner_service/intake/bounded_service.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/message_memory.h"

namespace stagewright {
namespace {

using grpc::internal::MethodHandler;
using grpc::internal::RpcMethod;

// Nobody's messages below this are much in memory, and nearly all are.
constexpr size_t kSmallBytes = size_t{64} << 10;
constexpr grpc::StatusCode kRefused = grpc::StatusCode::RESOURCE_EXHAUSTED;

bool Fits(const google::protobuf::Descriptor* type, grpc_byte_buffer* request, size_t most) {
  if (request == nullptr || grpc_byte_buffer_length(request) <= kSmallBytes) return true;
  grpc_byte_buffer_reader reader;
  if (!grpc_byte_buffer_reader_init(&reader, request)) return true;
  const grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
  grpc_byte_buffer_reader_destroy(&reader);
  const absl::string_view bytes(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(all)),
                                GRPC_SLICE_LENGTH(all));
  const bool fits = MessageMemory(type, bytes, most) <= most;
  grpc_slice_unref(all);
  return fits;
}

// Answers every call of a method alike, and makes nothing of its request.
class Refusal : public grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Refusal(const grpc::Status& status)
      : CallbackUnaryHandler([status](grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* /*request*/,
                                      grpc::ByteBuffer* /*response*/) {
          grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
          reactor->Finish(status);
          return reactor;
        }) {}
};

class BoundedHandler : public MethodHandler {
 public:
  BoundedHandler(MethodHandler* inner, const google::protobuf::Descriptor* type, size_t most)
      : inner_(inner),
        type_(type),
        most_(most),
        refusal_(grpc::Status(
            kRefused, absl::StrCat("the request would take more than ", most >> 20,
                                   " MiB of memory: it has far more parts than contents"))) {}

  void* Deserialize(grpc_call* call, grpc_byte_buffer* request, grpc::Status* status,
                    void** data) override {
    if (Fits(type_, request, most_)) return inner_->Deserialize(call, request, status, data);
    void* const raw = refusal_.Deserialize(call, request, status, data);
    if (status->ok()) *status = grpc::Status(kRefused, "");
    return raw;
  }

  void RunHandler(const HandlerParameter& call) override {
    if (call.status.error_code() != kRefused) return inner_->RunHandler(call);
    refusal_.RunHandler(HandlerParameter(call.call, call.server_context, call.request,
                                         grpc::Status::OK, call.internal_data,
                                         call.call_requester));
  }

 private:
  MethodHandler* const inner_;
  const google::protobuf::Descriptor* const type_;
  const size_t most_;
  Refusal refusal_;
};

RpcMethod::RpcType TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming())
    return method.server_streaming() ? RpcMethod::BIDI_STREAMING : RpcMethod::CLIENT_STREAMING;
  return method.server_streaming() ? RpcMethod::SERVER_STREAMING : RpcMethod::NORMAL_RPC;
}

}  // namespace

void BoundedService::Offer(const google::protobuf::MethodDescriptor& method, MethodHandler* handler,
                           size_t most_memory, const Offers& offers) {
  std::string path = absl::StrCat("/", method.service()->full_name(), "/", method.name());
  if (!offers(path)) return;
  const auto index = static_cast<int>(names_.size());
  names_.push_back(std::move(path));
  AddMethod(new grpc::internal::RpcServiceMethod(names_.back().c_str(), TypeOf(method), nullptr));
  MarkMethodCallback(index, new BoundedHandler(handler, method.input_type(), most_memory));
}

}  // namespace stagewright
