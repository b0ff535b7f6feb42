#include "planner_service/importers/profile_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

std::string NodeLine(const std::string& id, const std::string& forward = "1",
                     const std::string& backward = "1", const std::string& activation = "1",
                     const std::string& parameters = "1") {
  return id + " -- op(x=1, y) -- forward_compute_time=" + forward +
         ", backward_compute_time=" + backward + ", activation_size=" + activation +
         ", parameter_size=" + parameters + "\n";
}

struct Bad {
  const char* name;
  std::string text;
  const char* message;
};

class BadProfileTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadProfileTest, OneMessageNamesLineAndField) {
  const auto profile = ParseProfileText(GetParam().text, "p.txt");
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(profile.status().message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadProfileTest,
    ::testing::Values(
        Bad{"Empty", "", "p.txt: there is no node in it"},
        Bad{"Blank", "\n \n\t\r\n", "p.txt: there is no node in it"},
        Bad{"Negative", NodeLine("a") + NodeLine("b", "-0.5"),
            "p.txt, line 2: forward_compute_time: \"-0.5\" is negative"},
        Bad{"NotANumber", NodeLine("a", "1", "nan"),
            "p.txt, line 1: backward_compute_time: \"nan\" is no number"},
        Bad{"Infinite", NodeLine("a", "1", "1", "inf"),
            "p.txt, line 1: activation_size: \"inf\" is too large"},
        Bad{"Overflow", NodeLine("a", "1", "1", "1", "1e999"),
            "p.txt, line 1: parameter_size: \"1e999\" is too large"},
        Bad{"SumOverflows", NodeLine("a", "1", "1", "[9e14; 9e14]"),
            "p.txt, line 1: activation_size: \"9e14\" is too large"},
        Bad{"EmptyList", NodeLine("a", "1", "1", "[]"),
            "p.txt, line 1: activation_size: \"\" is no number"},
        Bad{"HalfANumber", NodeLine("a", "1x"),
            "p.txt, line 1: forward_compute_time: \"1x\" is no number"},
        Bad{"UsedTwice", NodeLine("a") + "\n" + NodeLine("a"),
            "p.txt, line 3: the id \"a\" is used twice"},
        Bad{"NoId", NodeLine(""),
            "p.txt, line 1: source \"-- op(x=1, y)\" of an edge is no node above"},
        Bad{"UnknownSource", NodeLine("a") + "\tb -- a\n",
            "p.txt, line 2: source \"b\" of an edge is no node above"},
        Bad{"EdgeBeforeItsNode", NodeLine("a") + "\ta -- b\n" + NodeLine("b"),
            "p.txt, line 2: destination \"b\" of an edge is no node above"},
        Bad{"Truncated", NodeLine("a").substr(0, 75), "p.txt, line 1: activation_size is missing"},
        Bad{"FieldTwice",
            "a -- b -- parameter_size=1, parameter_size=2, forward_compute_time=1, "
            "backward_compute_time=2, activation_size=1",
            "p.txt, line 1: parameter_size is given twice"},
        Bad{"TooManyParts", "a -- b -- c -- d -- e",
            "p.txt, line 1: a node has 3 or 4 parts between \" -- \", this line has 5"},
        Bad{"LongLine", NodeLine("a") + std::string((size_t{1} << 20) + 1, 'x'),
            "p.txt, line 2: longer than 1 MiB"},
        Bad{"NotUtf8", NodeLine("a") + "b\xff", "p.txt, line 2: not UTF-8"}),
    [](const auto& test) { return test.param.name; });

// Every prefix and many damaged copies either parse or fail with one line.
TEST(ProfileTextTest, DamagedTextNeverCrashes) {
  const std::string text = NodeLine("a") + NodeLine("b", "2.5", "1e2", "[1; 2]") + "\ta -- b\n";
  for (size_t n = 0; n <= text.size(); ++n) {
    const auto profile = ParseProfileText(text.substr(0, n), "p.txt");
    if (profile.ok()) continue;
    EXPECT_THAT(std::string(profile.status().message()), HasSubstr("p.txt"));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = text;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto profile = ParseProfileText(damaged, "p.txt");
    if (!profile.ok()) {
      EXPECT_EQ(std::string(profile.status().message()).find('\n'), std::string::npos);
    } else {
      (void)MakeProfileGraph(*profile, "p.txt", 1);
    }
  }
}

TEST(ProfileTextTest, NamesOfGraphs) {
  EXPECT_EQ(GraphNameOfFile("x/y/bert-48.graph.txt"), "bert-48");
  EXPECT_EQ(GraphNameOfFile("gnmt.json"), "gnmt");
  EXPECT_EQ(GraphNameOfFile(".txt"), ".txt");
  EXPECT_EQ(GraphNameOfFile("plain"), "plain");
}

}  // namespace
}  // namespace stagewright
