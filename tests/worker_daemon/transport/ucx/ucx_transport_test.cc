#include "worker_daemon/transport/ucx/ucx_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "worker_daemon/transport/unreached.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<UcxTransport>> Make(int device) {
  UcxOptions options;
  options.key = std::string(GenerationKey::kBytes, 'k');
  return UcxTransport::Create({"job", 1, device}, options);
}

TEST(UcxTransport, ConnectNamesThoseThatDoNotAnswerInTime) {
  const auto one = Make(1), two = Make(2), three = Make(3);
  ASSERT_TRUE(one.ok() && two.ok() && three.ok());
  const absl::Status status = (*one)->Connect({{2, (*two)->Address()}, {3, (*three)->Address()}},
                                              absl::Now() + absl::Milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer in time from device 2, 3"));
  EXPECT_THAT(UnreachedOf(status), ElementsAre(2, 3));
}

}  // namespace
}  // namespace stagewright
