// The main of tests of label gpu.
#include <gmock/gmock.h>

#include "tests/support/skips/run_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  return stagewright::testing::RunGpuTests();
}
