#include "common/base/nearest.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> known = {"plan", "jobs", "watch", "cancel", "workers", "submit"};
  EXPECT_EQ(Nearest("jbos", known), "jobs");
  EXPECT_EQ(Nearest("wathc", known), "watch");
  EXPECT_EQ(Nearest("job", known), "jobs");
  EXPECT_EQ(Nearest("sumbit", known), "submit");
  EXPECT_EQ(Nearest("worker", known), "workers");
  EXPECT_EQ(Nearest("plan", known), "plan");
}

TEST(Nearest, SaysNothingAboutOtherWords) {
  EXPECT_EQ(Nearest("fly", {"plan", "jobs"}), "");
  EXPECT_EQ(Nearest("x", {"jobs"}), "");
  EXPECT_EQ(Nearest("", {"jobs"}), "");
  EXPECT_EQ(Nearest("jobs", {}), "");
  EXPECT_EQ(Nearest(std::string(100'000, 'j'), {"jobs"}), "");
}

}  // namespace
}  // namespace stagewright
