#include "worker_daemon/daemon/places/own_directories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OwnDirectoriesTest : public ::testing::Test {
 protected:
  OwnDirectoriesTest() { fs::create_directories(there_); }
  ~OwnDirectoriesTest() override { fs::remove_all(place_); }

  const std::string place_ = absl::StrCat(::testing::TempDir(), "/own_directories_test");
  const std::string there_ = absl::StrCat(place_, "/there"), missing_ = absl::StrCat(place_, "/no");
};

TEST_F(OwnDirectoriesTest, HasNothingToSayOfGoodOnes) {
  const auto lines =
      LookAt({{"--data-root", there_}, {"--output-root", there_, true}, {"--a", ""}});
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines, IsEmpty());
}

TEST_F(OwnDirectoriesTest, SaysWhatIsNotThere) {
  const auto lines = LookAt({{"--data-root", missing_},
                             {"--output-root", missing_, true},
                             {"--c", missing_, true, true}});
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines,
              ElementsAre("--data-root " + missing_ +
                              ": there is no such directory; jobs that read there fail",
                          "--output-root " + missing_ +
                              ": there is no such directory: the first job makes it, if it may"));
}

// Permissions hold back nobody who is root: a loop of links does.
TEST_F(OwnDirectoriesTest, SaysWhatCannotBeReached) {
  const std::string loop = absl::StrCat(place_, "/loop");
  fs::create_symlink(loop, loop);
  const auto lines = LookAt({{"--output-root", loop, true}});
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines, ElementsAre(HasSubstr("; jobs that write there fail")));
}

TEST_F(OwnDirectoriesTest, RefusesWhatIsNoDirectory) {
  const std::string file = absl::StrCat(place_, "/file");
  std::ofstream(file) << "text";
  for (const bool made : {false, true}) {
    EXPECT_EQ(LookAt({{"--output-root", file, true, made}}).status(),
              absl::InvalidArgumentError("--output-root " + file + ": it is no directory"));
  }
}

}  // namespace
}  // namespace stagewright
