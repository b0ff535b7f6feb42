// A planning service on loopback with stubs to call it by.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/wire/graph_file.h"
#include "planner_service/service/server.h"
#include "stagewright/v1/job_service.grpc.pb.h"
#include "stagewright/v1/planner_service.grpc.pb.h"
#include "stagewright/v1/worker_service.grpc.pb.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/support/checkout/source_path.h"

namespace stagewright {

inline ServerOptions TestOptions() {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen = "";  // Its HTTP server takes two seconds to stop.
  options.state = ":memory:";
  return options;
}

inline ServerOptions WithMetrics() {
  ServerOptions options = TestOptions();
  options.metrics_listen = "127.0.0.1:0";
  return options;
}

inline v1::PlanRequest SmallRequest() {
  v1::PlanRequest request;
  *request.mutable_problem()->mutable_graph() = testing::SmallSpec().graph();
  request.mutable_problem()->set_cluster_preset("cpu:2");
  request.mutable_problem()->set_mini_batch(8);
  request.mutable_problem()->set_optimizer(v1::OPTIMIZER_SGD);
  return request;
}

// Minutes of search, unless it is stopped.
inline v1::PlanRequest EndlessRequest() {
  v1::PlanRequest request;
  *request.mutable_problem()->mutable_graph() =
      *ReadGraphProto(testing::SourcePath("examples/graphs/mmt.swg"));
  request.mutable_problem()->set_cluster_preset("summit:256");
  request.mutable_problem()->set_mini_batch(16384);
  request.mutable_problem()->set_optimizer(v1::OPTIMIZER_ADAM);
  request.mutable_options()->set_effort(100);
  return request;
}

class ServerTest : public ::testing::Test {
 protected:
  void Start(const ServerOptions& options = TestOptions()) {
    auto server = PlannerServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                         arguments);
    planner_ = v1::PlannerService::NewStub(channel_);
    jobs_ = v1::JobService::NewStub(channel_);
    workers_ = v1::WorkerService::NewStub(channel_);
  }

  grpc::Status Plan(const v1::PlanRequest& request, v1::PlanResponse* response = nullptr,
                    absl::Duration deadline = absl::Seconds(60)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    v1::PlanResponse ignored;
    return planner_->Plan(&context, request, response == nullptr ? &ignored : response);
  }

  void ExpectRefused(const v1::PlanRequest& request, grpc::StatusCode code,
                     const std::string& message) {
    const grpc::Status status = Plan(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(message));
  }

  std::string Metrics() {
    const std::pair<std::string, std::string> address =
        absl::StrSplit(server_->metrics_address(), ':');
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.second, &port));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    close(fd);
    return text;
  }

  // The value of a series as the text format writes it; -1 if it is not there.
  double Metric(const std::string& series) {
    for (absl::string_view line : absl::StrSplit(Metrics(), '\n')) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(line, absl::MaxSplits(absl::ByChar(' '), 1));
      double value = 0;
      if (parts.first == series && absl::SimpleAtod(parts.second, &value)) return value;
    }
    return -1;
  }

  std::unique_ptr<PlannerServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PlannerService::Stub> planner_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
};

}  // namespace stagewright
