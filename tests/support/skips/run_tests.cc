#include "tests/support/skips/run_tests.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace stagewright::testing {
namespace {

constexpr const char* kRequireGpu = "STAGEWRIGHT_REQUIRE_GPU";

void SayWhySkipped(const ::testing::TestInfo& test) {
  const ::testing::TestResult& result = *test.result();
  if (!result.Skipped()) return;
  for (int i = 0; i < result.total_part_count(); ++i) {
    if (!result.GetTestPartResult(i).skipped()) continue;
    std::fprintf(stderr, "  %s.%s: %s\n", test.test_suite_name(), test.name(),
                 result.GetTestPartResult(i).message());
  }
}

void SayAllSkipped(const ::testing::UnitTest& tests) {
  std::fprintf(stderr, "%s=1, but %d of %d tests were skipped:\n", kRequireGpu,
               tests.skipped_test_count(), tests.test_to_run_count());
  for (int s = 0; s < tests.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *tests.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) SayWhySkipped(*suite.GetTestInfo(t));
  }
}

}  // namespace

int RunTests() {
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) return failed;
  return ::testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? kSkipped : 0;
}

int RunGpuTests() {
  const int ended = RunTests();
  const char* const required = std::getenv(kRequireGpu);
  if (required == nullptr || std::string_view(required) != "1") return ended;
  if (::testing::GTEST_FLAG(list_tests)) return ended;
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  if (ended == kSkipped) {
    SayAllSkipped(tests);
    return 1;
  }
  if (ended == 0 && tests.test_to_run_count() == 0) {
    std::fprintf(stderr, "%s=1, but no test was run\n", kRequireGpu);
    return 1;
  }
  return ended;
}

}  // namespace stagewright::testing
