#include "worker_daemon/daemon/measuring/profile_run.h"

#include <gtest/gtest.h>

#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace stagewright {
namespace {

TEST(ProfileRun, WaitsForTheOneBeforeItAndKeepsNobodyElseWaiting) {
  absl::Notification reports, released, second_reports;
  v1::ProfileOperators request;  // Without a graph, which is soon found out.
  request.set_request(1);
  const OfferedDevice device{"cpu0", "cpu", kGiB};
  auto first = std::make_unique<ProfileRun>(request, device, 1, [&](const v1::ConnectRequest&) {
    reports.Notify();
    released.WaitForNotification();
  });
  reports.WaitForNotification();
  request.set_request(2);
  int64_t answered = 0;
  ProfileRun second(
      request, device, 1,
      [&](const v1::ConnectRequest& answer) {
        answered = answer.operators_profiled().request();
        second_reports.Notify();
      },
      std::move(first));
  EXPECT_FALSE(second_reports.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
  released.Notify();
  ASSERT_TRUE(second_reports.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_EQ(answered, 2);
}

}  // namespace
}  // namespace stagewright
