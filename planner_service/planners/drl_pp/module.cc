// The shared module's one door; see on_demand.h.
#include <cstdlib>

#include "planner_service/planners/drl_pp/drl_pp.h"

extern "C" __attribute__((visibility("default"))) stagewright::Planner* stagewright_make_drl_pp() {
  stagewright::DrlPpConfig config;
  if (const char* path = std::getenv("STAGEWRIGHT_DRL_PP_LOAD")) config.load_policy = path;
  if (const char* path = std::getenv("STAGEWRIGHT_DRL_PP_SAVE")) config.save_policy = path;
  return stagewright::MakeDrlPpPlanner(std::move(config)).release();
}
