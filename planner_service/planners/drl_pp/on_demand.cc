#include "planner_service/planners/drl_pp/on_demand.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using MakePlannerFunction = Planner*();

// The module stays loaded: LibTorch keeps threads.
absl::StatusOr<MakePlannerFunction*> LoadModule() {
  static const auto loaded = []() -> absl::StatusOr<MakePlannerFunction*> {
    void* module = dlopen("libstagewright_drl_pp.so", RTLD_NOW | RTLD_LOCAL);
    void* symbol = module == nullptr ? nullptr : dlsym(module, "stagewright_make_drl_pp");
    if (symbol == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("planner drl_pp is not installed here: ", dlerror()));
    }
    return reinterpret_cast<MakePlannerFunction*>(symbol);
  }();
  return loaded;
}

class OnDemandPlanner : public Planner {
 public:
  std::string name() const override { return "drl_pp"; }
  std::string description() const override {
    return "DRL-PP: a policy network learns cuts and placement by trial";
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    ASSIGN_OR_RETURN(MakePlannerFunction* const make, LoadModule());
    return std::unique_ptr<Planner>(make())->Solve(problem, options, context);
  }
};

}  // namespace

std::unique_ptr<Planner> MakeDrlPpPlannerOnDemand() { return std::make_unique<OnDemandPlanner>(); }

}  // namespace stagewright
