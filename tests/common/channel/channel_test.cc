#include "common/channel/channel.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// Waits for connections on a port of loopback.
class Listener {
 public:
  Listener() {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~Listener() { close(fd_); }
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
};

TEST(Channel, AsksNoProxyWhereItIsNotEncrypted) {
  const Listener proxy;
  setenv("http_proxy", absl::StrCat("http://127.0.0.1:", proxy.port()).c_str(), 1);
  // On Linux, 0.0.0.0 is this machine, which IsLoopback does not know.
  for (const char* const host : {"127.0.0.1", "0.0.0.0"}) {
    const Listener planner;
    const auto channel =
        OpenChannel(absl::StrCat(host, ":", planner.port()), {{}, "", /*insecure=*/true}, {});
    ASSERT_TRUE(channel.ok()) << channel.status();
    (*channel)->GetState(/*try_to_connect=*/true);
    pollfd either[] = {{planner.fd(), POLLIN, 0}, {proxy.fd(), POLLIN, 0}};
    EXPECT_EQ(poll(either, 2, /*milliseconds=*/60000), 1);
    EXPECT_NE(either[0].revents, 0) << host;
    EXPECT_EQ(either[1].revents, 0) << host;
  }
  unsetenv("http_proxy");
}

// Answers every call with what it says who calls.
class Echo : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Answer : public grpc::ServerGenericBidiReactor {
     public:
      void OnDone() override { delete this; }
    };
    const auto& metadata = context->client_metadata();
    const auto found = metadata.find("authorization");
    auto* answer = new Answer;
    answer->Finish({grpc::StatusCode::NOT_FOUND,
                    found == metadata.end()
                        ? "nobody"
                        : std::string(found->second.data(), found->second.size())});
    return answer;
  }
};

TEST(Channel, SendsTokensThatAHeaderTakes) {
  Echo service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  const std::string path = ::testing::TempDir() + "/channel_test_token";
  const auto write = [&](const std::string& text) { std::ofstream(path, std::ios::trunc) << text; };
  const auto open = [&] {
    return OpenChannel(absl::StrCat("127.0.0.1:", port), {{}, path, false}, {});
  };
  for (const char* const wrong : {"t\xc3\xb6ken", "to\x01ken", "to\tken", "token\x7f\n"}) {
    write(wrong);
    const absl::Status refused = open().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << wrong;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(path));
  }
  for (const char* const empty : {"", " \r\n\t\n", "\xef\xbb\xbf\r\n"}) {
    write(empty);
    EXPECT_THAT(std::string(open().status().message()), HasSubstr(path + ": it is empty"));
  }
  write("\xef\xbb\xbf\r\n token\r\nmore\n");
  const auto channel = open();
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto call = [&] {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::ByteBuffer answer;
    grpc::Status status;
    const auto made =
        grpc::GenericStub(*channel).PrepareUnaryCall(&context, "/any/Call", {}, &queue);
    made->StartCall();
    made->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status.error_message();
  };
  EXPECT_EQ(call(), "Bearer token");
  write("t\xc3\xb6ken");
  EXPECT_EQ(call(), "nobody");
  write("another");
  EXPECT_EQ(call(), "Bearer another");
  server->Shutdown();
}

}  // namespace
}  // namespace stagewright
