#include "planner_service/election/follower.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "stagewright/v1/job_service.grpc.pb.h"

namespace stagewright {
namespace {

constexpr int kAnsweredPings = 2;  // So many gRPC sends by default while calls say nothing.

// Speaks as much HTTP/2 as a connection needs, answers no call, and freezes after a while, as a
// machine does: its connections stay.
class FreezingLeader {
 public:
  FreezingLeader() {
    at_.sin_family = AF_INET;
    at_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at_;
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&at_), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at_), &size), 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~FreezingLeader() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", ntohs(at_.sin_port)); }

 private:
  void Run() {
    const int peer = accept(listener_, nullptr, nullptr);
    const auto read = [peer](size_t bytes) {
      std::string text(bytes, '\0');
      if (bytes > 0 && recv(peer, text.data(), bytes, MSG_WAITALL) < static_cast<ssize_t>(bytes))
        text.clear();
      return text;
    };
    const auto write = [peer](const std::string& text) {
      send(peer, text.data(), text.size(), MSG_NOSIGNAL);
    };
    constexpr char kSettings = 4, kPing = 6, kAck = 1;
    read(24);  // The preface.
    write(std::string("\0\0\0\4\0\0\0\0\0", 9));
    int pings = 0;
    // Frames: three bytes of length, type, flags, and four of stream.
    for (std::string frame = read(9); frame.size() == 9; frame = read(9)) {
      const std::string payload =
          read(static_cast<uint8_t>(frame[1]) << 8 | static_cast<uint8_t>(frame[2]));
      const bool question = (frame[4] & kAck) == 0;
      if (frame[3] == kSettings && question) write(std::string("\0\0\0\4\1\0\0\0\0", 9));
      if (frame[3] == kPing && question && ++pings <= kAnsweredPings)
        write(std::string("\0\0\x08\6\1\0\0\0\0", 9) + payload);
    }
    close(peer);
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at_ = {};
  std::thread thread_;
};

TEST(Follower, QuietCallsEndWhenTheLeaderFreezes) {
  FreezingLeader leader;
  const auto follower = Follower::Start({"127.0.0.1:0"}).value();
  follower->Follow(leader.address());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::JobService::Stub jobs(
      grpc::CreateChannel(follower->address(), grpc::InsecureChannelCredentials()));
  const auto reader = jobs.WatchJob(&context, {});
  v1::WatchJobResponse update;
  EXPECT_FALSE(reader->Read(&update));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace stagewright
