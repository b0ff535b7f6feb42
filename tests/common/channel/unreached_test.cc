#include "common/channel/unreached.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace stagewright {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// In the words of gRPC 1.51.
constexpr char kEnded[] =
    "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:7070: Socket "
    "closed";

ChannelSecurity Tls(const std::string& ca, const std::string& cert) {
  ChannelSecurity security;
  security.tls.authorities = ca;
  security.tls.certificate = cert;
  return security;
}

class WithAdviceTest : public ::testing::Test {
 protected:
  WithAdviceTest() {
    for (const char* variable : {"grpc_proxy", "https_proxy", "http_proxy"}) unsetenv(variable);
  }
  static std::string Told(const std::string& said, const ChannelSecurity& security,
                          const std::string& address = "planner.lab:7070") {
    return WithAdvice(said, address, security);
  }
};

TEST_F(WithAdviceTest, SaysWhatAnEndedConnectionMayMean) {
  EXPECT_THAT(Told(kEnded, {}), StartsWith(kEnded));
  EXPECT_THAT(Told(kEnded, {}), EndsWith("(it may speak TLS only: give --tls-ca)"));
  EXPECT_THAT(Told(kEnded, Tls("ca.pem", "")), HasSubstr("give --tls-cert and --tls-key"));
  EXPECT_THAT(Told(kEnded, Tls("ca.pem", "me.pem")), HasSubstr("--tls-cert me.pem"));
  EXPECT_EQ(Told("Socket closed", {}), "Socket closed") << "of a call on its way";
}

TEST_F(WithAdviceTest, SaysWhatFailedHandshakesMean) {
  const ChannelSecurity security = Tls("ca.pem", "");
  EXPECT_THAT(Told("SSL routines::wrong version number", security), HasSubstr("speaks no TLS"));
  EXPECT_THAT(Told("SSL routines::certificate verify failed", security),
              HasSubstr("no authority in --tls-ca ca.pem, or has expired"));
  EXPECT_THAT(Told("SSL routines::certificate verify failed", Tls("", "me.pem")),
              HasSubstr("no authority in this machine's list"));
  EXPECT_THAT(Told("Hostname Verification Check failed.", security), HasSubstr("for other names"));
}

// What refuses may be the proxy.
TEST_F(WithAdviceTest, NamesAProxyOnTheWay) {
  const std::string refused = "failed to connect to all addresses; last error: Connection refused";
  setenv("https_proxy", "http://127.0.0.1:1", 1);
  EXPECT_THAT(Told(refused, Tls("ca.pem", "")), HasSubstr("the proxy of https_proxy"));
  EXPECT_THAT(Told(refused, {}), HasSubstr("is it started")) << "none is asked in the clear";
  EXPECT_THAT(Told(refused, Tls("ca.pem", ""), "127.0.0.1:7070"), HasSubstr("is it started"));
  unsetenv("https_proxy");
}

TEST_F(WithAdviceTest, SaysWhetherAnybodyListens) {
  EXPECT_THAT(Told("Failed to connect to remote host: Connection refused", {}),
              HasSubstr("is it started"));
  EXPECT_THAT(Told("127.0.0.1:9070: Failed parsing HTTP/2", {}), HasSubstr("no planner"));
  EXPECT_EQ(Told("something new", {}), "something new");
}

}  // namespace
}  // namespace stagewright
