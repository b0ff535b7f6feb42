#include "worker_daemon/transport/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/error_details.h"

namespace stagewright {
namespace {

using ::testing::ContainsRegex;

constexpr Bytes kMost = std::numeric_limits<int64_t>::max();

TEST(NamingFullSharedMemory, SaysWhichFileSystemLacksRoom) {
  const absl::Status named = NamingFullSharedMemory(absl::InternalError("no resources"), kMost);
  EXPECT_TRUE(absl::IsUnavailable(named));
  EXPECT_TRUE(IsOfStorage(named));
  EXPECT_THAT(std::string(named.message()),
              ContainsRegex("^/dev/shm is full: .*B of .*B are free, .* needed: no resources$"));
}

TEST(NamingFullSharedMemory, AnErrorOfSomethingElseStaysAsItIs) {
  const absl::Status error = absl::InternalError("no resources");
  EXPECT_EQ(NamingFullSharedMemory(error, 0), error);
  EXPECT_EQ(NamingFullSharedMemory(error, kMost, "/no/such/folder"), error);
  EXPECT_EQ(NamingFullSharedMemory(absl::OkStatus(), kMost), absl::OkStatus());
}

TEST(NotingFullSharedMemory, SaysWhereMessagesThatDidNotComeMayBe) {
  const absl::Status late = WithStorageFault(absl::DeadlineExceededError("step 2 hangs"));
  const absl::Status noted = NotingFullSharedMemory(late, "/proc");  // It has no room for anything.
  EXPECT_TRUE(absl::IsDeadlineExceeded(noted));
  EXPECT_TRUE(IsOfStorage(noted));
  EXPECT_THAT(std::string(noted.message()),
              ContainsRegex("^step 2 hangs; messages .* lost: /proc is full: 0 B of 0 B are free"));
  EXPECT_EQ(NotingFullSharedMemory(late, "/no/such/folder"), late);
  EXPECT_EQ(NotingFullSharedMemory(absl::OkStatus(), "/proc"), absl::OkStatus());
}

}  // namespace
}  // namespace stagewright
