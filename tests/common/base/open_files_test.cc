#include "common/base/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace stagewright {
namespace {

TEST(OpenFiles, AreAsManyAsTheSystemAllows) {
  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit few = {files.rlim_max < 64 ? files.rlim_max / 2 : 64, files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  OpenAsManyFilesAsAllowed();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(files.rlim_cur, few.rlim_max);
  EXPECT_EQ(files.rlim_max, few.rlim_max);
}

}  // namespace
}  // namespace stagewright
