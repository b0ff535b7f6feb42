#include "worker_daemon/transport/ucx/ucx_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <optional>
#include <string>
#include <thread>

#include "common/base/error_details.h"

namespace stagewright {
namespace {

using ::testing::StartsWith;

// What comes of making a worker by a thread whose /dev/shm has this size; nothing without the right
// to mount one.
std::optional<absl::Status> MadeWithSharedMemoryOf(const std::string& size) {
  std::optional<absl::Status> made;
  std::thread([&] {
    const std::string options = "size=" + size;
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, options.c_str()) != 0)
      return;
    made = UcxWorker::Create({.tls = "posix,self"}).status();
  }).join();
  return made;
}

TEST(UcxWorker, NamesSharedMemoryThatIsFull) {
  const auto full = MadeWithSharedMemoryOf("1m"), enough = MadeWithSharedMemoryOf("64m");
  if (!full.has_value() || !enough.has_value()) GTEST_SKIP() << "no right to mount a file system";
  EXPECT_TRUE(absl::IsUnavailable(*full)) << *full;
  EXPECT_TRUE(IsOfStorage(*full));
  EXPECT_THAT(std::string(full->message()),
              StartsWith("/dev/shm is full: 1 MiB of 1 MiB are free, up to 8 MiB are needed: "));
  EXPECT_EQ(*enough, absl::OkStatus());
}

}  // namespace
}  // namespace stagewright
