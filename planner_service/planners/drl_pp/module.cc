// The shared module's one door; see on_demand.h.
#include <cstdlib>

#include "planner_service/planners/drl_pp/drl_pp.h"

extern "C" __attribute__((visibility("default"))) stagewright::Planner* stagewright_make_drl_pp(
    const stagewright::DrlPpConfig& given) {
  stagewright::DrlPpConfig config = given;
  const auto fill = [](const char* variable, std::string& path) {
    const char* value = std::getenv(variable);
    if (path.empty() && value != nullptr) path = value;
  };
  fill("STAGEWRIGHT_DRL_PP_LOAD", config.load_policy);
  fill("STAGEWRIGHT_DRL_PP_SAVE", config.save_policy);
  return stagewright::MakeDrlPpPlanner(std::move(config)).release();
}
