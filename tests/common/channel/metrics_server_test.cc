#include "common/channel/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::ElementsAre;

TEST(MetricsServer, ListensThereWithThreadsForSlowReaders) {
  EXPECT_THAT(MetricsServerOptions("127.0.0.1:9090"),
              ElementsAre("listening_ports", "127.0.0.1:9090", "num_threads", "4",
                          "request_timeout_ms", "5000"));
}

TEST(MetricsServer, SaysThePortThatItTook) {
  EXPECT_EQ(MetricsAddress("127.0.0.1:0", 4711), "127.0.0.1:4711");
  EXPECT_EQ(MetricsAddress("[::1]:0", 4711), "[::1]:4711");
}

}  // namespace
}  // namespace stagewright
