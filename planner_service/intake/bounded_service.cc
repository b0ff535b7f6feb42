#include "planner_service/intake/bounded_service.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using grpc::internal::MethodHandler;
using grpc::internal::RpcMethod;

using Answer = MessageBudget::Answer;

MessageBudget::Claim Claimed(MessageBudget& budget, const google::protobuf::Descriptor* type,
                             grpc_byte_buffer* request) {
  grpc_byte_buffer_reader reader;
  if (request == nullptr || grpc_byte_buffer_length(request) <= MessageBudget::kUncounted ||
      !grpc_byte_buffer_reader_init(&reader, request))
    return {};
  const grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
  grpc_byte_buffer_reader_destroy(&reader);
  const auto claim = budget.Take(
      type, {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(all)), GRPC_SLICE_LENGTH(all)});
  grpc_slice_unref(all);
  return claim;
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
  BoundedHandler(MethodHandler* inner, const google::protobuf::Descriptor* type,
                 const RequestBounds& bounds)
      : inner_(inner),
        type_(type),
        budget_(bounds.budget),
        too_large_(grpc::Status(
            grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("the request would take more than ", budget_->most_of_message() >> 20,
                         " MiB of memory: it has far more parts than contents"))),
        full_(bounds.full) {}

  // Streams that callers send have no request, and come to RunHandler alone.
  void* Deserialize(grpc_call* call, grpc_byte_buffer* request, grpc::Status* status,
                    void** data) override {
    auto* looked = new (grpc_call_arena_alloc(call, sizeof(Looked))) Looked;
    const MessageBudget::Claim claim = Claimed(*budget_, type_, request);
    looked->taken = claim.taken;
    if (claim.answer != Answer::kTaken)
      looked->handler = claim.answer == Answer::kFull ? &full_ : &too_large_;
    else
      looked->handler = inner_;
    void* const message = looked->handler->Deserialize(call, request, status, &looked->data);
    *data = looked;
    return message;
  }

  void RunHandler(const HandlerParameter& call) override {
    if (call.internal_data == nullptr) return inner_->RunHandler(call);
    const Looked looked = *static_cast<Looked*>(call.internal_data);
    looked.handler->RunHandler(
        HandlerParameter(call.call, call.server_context, call.request, call.status, looked.data,
                         // Called when the call has ended and its messages are gone.
                         [budget = budget_, taken = looked.taken, end = call.call_requester] {
                           budget->GiveBack(taken);
                           end();
                         }));
  }

 private:
  // What Deserialize leaves for RunHandler.
  struct Looked {
    MethodHandler* handler = nullptr;
    void* data = nullptr;  // The handler's own.
    size_t taken = 0;
  };

  MethodHandler* const inner_;
  const google::protobuf::Descriptor* const type_;
  const std::shared_ptr<MessageBudget> budget_;
  Refusal too_large_, full_;
};

RpcMethod::RpcType TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming())
    return method.server_streaming() ? RpcMethod::BIDI_STREAMING : RpcMethod::CLIENT_STREAMING;
  return method.server_streaming() ? RpcMethod::SERVER_STREAMING : RpcMethod::NORMAL_RPC;
}

}  // namespace

void BoundedService::Offer(const google::protobuf::MethodDescriptor& method, MethodHandler* handler,
                           const RequestBounds& bounds, const Offers& offers) {
  std::string path = absl::StrCat("/", method.service()->full_name(), "/", method.name());
  if (!offers(path)) return;
  const auto index = static_cast<int>(names_.size());
  names_.push_back(std::move(path));
  AddMethod(new grpc::internal::RpcServiceMethod(names_.back().c_str(), TypeOf(method), nullptr));
  MarkMethodCallback(index, new BoundedHandler(handler, method.input_type(), bounds));
}

}  // namespace stagewright
