#include "common/channel/address.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(Address, KnowsWhatStaysOnThisMachine) {
  for (const char* here :
       {"127.0.0.1:7070", "127.8.8.8:0", "localhost:7070", "LOCALHOST:1", "localhost.:1",
        "[::1]:7070", "unix:/run/planner", "ipv4:127.0.0.1:1,127.0.0.2:2", "ipv6:[::1]:1"})
    EXPECT_TRUE(IsLoopback(here)) << here;
  for (const char* away :
       {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "planner:7070", "127.0.0.1.example.org:7070",
        "localhost.example.org:7070", "128.0.0.1:7070", "[2001:db8::1]:7070", ":7070", "",
        "127.1:7070", "[::ffff:10.0.0.1]:1", "ipv4:127.0.0.1:1,10.0.0.1:2", "ipv4:"})
    EXPECT_FALSE(IsLoopback(away)) << away;
}

TEST(Address, KnowsWhatIsNoPlaceToCall) {
  for (const char* all : {"0.0.0.0:7070", "[::]:7070", "[0:0::0]:1", ":7070"})
    EXPECT_TRUE(IsWildcard(all)) << all;
  for (const char* one : {"127.0.0.1:7070", "10.0.0.0:1", "[::1]:7070", "planner:7070"})
    EXPECT_FALSE(IsWildcard(one)) << one;
}

TEST(Address, HasAPort) {
  EXPECT_TRUE(CheckAddress("listen", "127.0.0.1:0").ok());
  EXPECT_TRUE(CheckAddress("listen", "[::]:65535").ok());
  for (const char* wrong : {"127.0.0.1", "host:", "host:65536", "host:-1", "host:http", ""}) {
    const absl::Status status = CheckAddress("listen", wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_NE(status.message().find("listen"), absl::string_view::npos);
  }
}

TEST(Address, IsOneThatCanBeCalled) {
  for (const char* good : {"127.0.0.1:7070", "planner.lab:1", "[::1]:65535", "ipv4:10.0.0.1:1",
                           "dns:///planner.lab", "unix:/run/planner"})
    EXPECT_TRUE(CheckTarget("--planner", good).ok()) << good;
  for (const char* wrong : {"7070", "planner", "planner:", "planner:0", "planner:65536", ":7070",
                            "", "https://planner:7070", "planner:7070/"}) {
    const absl::Status status = CheckTarget("--planner", wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_NE(status.message().find("--planner"), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace stagewright
