#include "planner_service/importers/pipedream.h"
#include "planner_service/importers/profile.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  fuzz::CheckRefusal(ImportPipeDream(fuzz::Text(data, size), "profile").status());
  return 0;
}
