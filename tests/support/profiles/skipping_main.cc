// The main of tests whose cases may lack what they need: a run without failures in which a case was
// skipped ends with CTest's SKIP_RETURN_CODE, so that the summary names it.
#include <gmock/gmock.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  constexpr int kSkipped = 77;
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) return failed;
  return testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? kSkipped : 0;
}
