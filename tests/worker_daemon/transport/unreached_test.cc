#include "worker_daemon/transport/unreached.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/status.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Unreached, GoesWithTheErrorThatIsPassedOn) {
  const absl::Status error = WithUnreached(absl::UnavailableError("no way"), {12, 3});
  const absl::Status passed_on = Annotate(error, "device cpu0");
  EXPECT_THAT(UnreachedOf(passed_on), ElementsAre(3, 12));
  EXPECT_EQ(passed_on.message(), "device cpu0: no way");
}

TEST(Unreached, OtherErrorsAndSuccessNameNone) {
  EXPECT_THAT(UnreachedOf(absl::UnavailableError("device 3 has gone")), IsEmpty());
  EXPECT_THAT(UnreachedOf(WithUnreached(absl::OkStatus(), {3})), IsEmpty());
}

}  // namespace
}  // namespace stagewright
