// The main of tests that read profiles, which may be absent.
#include <gmock/gmock.h>

#include "tests/support/skips/run_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  return stagewright::testing::RunTests();
}
