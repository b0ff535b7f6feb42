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

}  // namespace
}  // namespace stagewright
