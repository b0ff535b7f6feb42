#include "planner_service/election/elected_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(ElectedServer, SaysWhereTheOthersReachIt) {
  ServerOptions options;
  options.door.insecure = true;
  ElectionOptions election;
  election.store = "etcd://127.0.0.1:1";  // Nobody.
  const auto refusal = [&] {
    const absl::Status status = StartElected(options, election).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  for (const char* const all : {"0.0.0.0:0", "[::]:0"}) {
    options.listen = all;
    EXPECT_THAT(refusal(), HasSubstr("give --advertise HOST:PORT"));
  }
  election.advertise = "0.0.0.0:7070";
  EXPECT_THAT(refusal(), HasSubstr("--advertise 0.0.0.0:7070"));
  election.advertise = "planner:7070";
  options.worker_listen = "0.0.0.0:0";
  EXPECT_THAT(refusal(), HasSubstr("give --advertise-workers HOST:PORT"));
}

TEST(ElectedServer, SpeaksToEtcdInTheClearWhereThatIsAskedForByName) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen.clear();
  options.door.insecure = true;  // What listens is another matter.
  ElectionOptions election;
  election.store = "etcd://0.0.0.0:1";  // No loopback by its name; nobody.
  const absl::Status refused = StartElected(options, election).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--etcd-insecure"));
  election.etcd_insecure = true;
  EXPECT_EQ(StartElected(options, election).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace stagewright
