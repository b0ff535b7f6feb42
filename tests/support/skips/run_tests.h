// How a test program ends whose cases may lack what they need.
#pragma once

namespace stagewright::testing {

// CTest's SKIP_RETURN_CODE: the summary names the entry as skipped.
inline constexpr int kSkipped = 77;

// Runs all tests, after InitGoogleTest. 0 if all passed; kSkipped if none failed and some were
// skipped.
int RunTests();

// RunTests, but where the environment variable STAGEWRIGHT_REQUIRE_GPU is "1", a skipped case is a
// failure, and so is a run of no case at all: whoever sets it claims that a GPU is there. Then says
// which cases were skipped and why.
int RunGpuTests();

}  // namespace stagewright::testing
