// A service whose requests are looked at before messages are made of them: one that would take far
// more memory than it has bytes is refused with RESOURCE_EXHAUSTED, and so is one that does not fit
// beside those of all calls that have not ended.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "planner_service/intake/message_budget.h"

namespace stagewright {

// A generated service, or what is derived of one, that says what handles its calls.
template <typename Service>
class WithHandlers : public Service {
 public:
  using Service::Service;
  grpc::internal::MethodHandler* Handler(int method) { return this->GetHandler(method); }
};

// What requests are held to.
struct RequestBounds {
  std::shared_ptr<MessageBudget> budget;
  grpc::Status full;  // What a call is told that finds no room.
};

// Stands for a service where servers register one. Messages of streams that callers send are not
// looked at.
class BoundedService : public grpc::Service {
 public:
  using Offers = std::function<bool(absl::string_view path)>;

  // `inner` has callback methods only, outlives this, and is registered nowhere itself. Methods
  // that are not offered are left to a generic service, if there is one.
  template <typename Service>
  BoundedService(
      const char* name, WithHandlers<Service>* inner, const RequestBounds& bounds,
      const Offers& offers = [](absl::string_view) { return true; }) {
    const auto* type = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    names_.reserve(static_cast<size_t>(type->method_count()));  // gRPC keeps pointers to them.
    for (int i = 0; i < type->method_count(); ++i)
      Offer(*type->method(i), inner->Handler(i), bounds, offers);
  }

 private:
  void Offer(const google::protobuf::MethodDescriptor& method,
             grpc::internal::MethodHandler* handler, const RequestBounds& bounds,
             const Offers& offers);

  std::vector<std::string> names_;  // Those that are offered.
};

}  // namespace stagewright
