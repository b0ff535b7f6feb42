// A test that passes and one that is skipped: what tests/scripts/skips_test.py runs.
#include <gtest/gtest.h>

namespace {

TEST(Sample, Passes) {}
TEST(Sample, IsSkipped) { GTEST_SKIP() << "no GPU in a sample"; }

}  // namespace
