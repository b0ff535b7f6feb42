// gRPC services of a test at a free port of this machine.
#pragma once

#include <grpcpp/server_builder.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace stagewright::testing {

// Serves from when it is made; its end cancels calls and waits for them. So a service that has one
// as a member declares it behind all that its calls use.
class LoopbackServer {
 public:
  explicit LoopbackServer(std::initializer_list<grpc::Service*> services) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    for (grpc::Service* service : services) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~LoopbackServer() { server_->Shutdown(std::chrono::system_clock::now()); }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  const std::string& address() const { return address_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace stagewright::testing
