#include "planner_service/queue/wait_reason.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(WaitReasonTest, NamesWhatIsKeptBack) {
  DeviceCounts devices;
  devices.free = 1;
  EXPECT_EQ(TooFewFree(2, devices), "waits for 2 free devices: 1 is free");
  devices.cordoned = 1;
  devices.quarantined = 2;
  EXPECT_EQ(TooFewFree(4, devices),
            "waits for 4 free devices: 1 is free, 1 is cordoned, 2 are in quarantine");
  devices = DeviceCounts();
  devices.ending = 1;
  devices.draining = 1;
  EXPECT_EQ(TooFewFree(1, devices),
            "waits for 1 free device: 0 are free, 1 is being left, 1 is draining");
  devices.stuck = 1;
  EXPECT_EQ(TooFewFree(1, devices),
            "waits for 1 free device: 0 are free, 1 is being left, "
            "1 is not left yet by the run before, 1 is draining");
  devices.stuck = 0;
  EXPECT_EQ(TooFewThere(3, 2, devices),
            "waits for 3 devices: 2 are connected and open to jobs, 1 is being left, "
            "1 is draining");
}

TEST(WaitReasonTest, NamesOwnersAndJobs) {
  EXPECT_EQ(QuotaUsed(Account::Of("alice", ""), 8, 6, 4),
            "quota of owner alice: 8 devices, 6 in use, the job needs 4");
  EXPECT_EQ(QuotaUsed(Account::Of("", ""), 1, 1, 1),
            "quota of jobs without an owner: 1 device, 1 in use, the job needs 1");
  EXPECT_EQ(QuotaUsed(Account::Of("alice", "vision"), 8, 6, 4),
            "quota of tenant vision: 8 devices, 6 in use, the job needs 4");
  EXPECT_EQ(RoomMadeBy({3}), "waits for jobs/3 to save its state and make room");
  EXPECT_EQ(RoomMadeBy({3, 5}), "waits for jobs/3, jobs/5 to save their state and make room");
}

TEST(WaitReasonTest, CountsInEnglish) {
  for (const auto& [position, text] :
       {std::pair(1, "1st"), std::pair(2, "2nd"), std::pair(3, "3rd"), std::pair(4, "4th"),
        std::pair(11, "11th"), std::pair(12, "12th"), std::pair(21, "21st"),
        std::pair(113, "113th")}) {
    EXPECT_EQ(BehindJob(position, 7, -2),
              std::string(text) + " in the queue behind jobs/7 (priority -2)");
  }
}

}  // namespace
}  // namespace stagewright
