// A service whose requests are looked at before messages are made of them: one that would take far
// more memory than it has bytes is refused with RESOURCE_EXHAUSTED.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/service_type.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagewright {

// A request may take so many times the memory of the largest message that is taken. Graphs take
// about ten times their own bytes.
inline constexpr size_t kMostMemoryOfRequest = 16;

// A generated service, or what is derived of one, that says what handles its calls.
template <typename Service>
class WithHandlers : public Service {
 public:
  using Service::Service;
  grpc::internal::MethodHandler* Handler(int method) { return this->GetHandler(method); }
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
      const char* name, WithHandlers<Service>* inner, size_t most_memory,
      const Offers& offers = [](absl::string_view) { return true; }) {
    const auto* type = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    names_.reserve(static_cast<size_t>(type->method_count()));  // gRPC keeps pointers to them.
    for (int i = 0; i < type->method_count(); ++i)
      Offer(*type->method(i), inner->Handler(i), most_memory, offers);
  }

 private:
  void Offer(const google::protobuf::MethodDescriptor& method,
             grpc::internal::MethodHandler* handler, size_t most_memory, const Offers& offers);

  std::vector<std::string> names_;  // Those that are offered.
};

}  // namespace stagewright
