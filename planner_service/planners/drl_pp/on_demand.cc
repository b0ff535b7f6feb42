#include "planner_service/planners/drl_pp/on_demand.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using MakePlannerFunction = Planner*(const DrlPpConfig&);

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

class OnDemandDrlPp : public DrlPp {
 public:
  explicit OnDemandDrlPp(DrlPpConfig config) : config_(std::move(config)) {}
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    if (context.Expired()) {
      Outcome outcome;
      SayStopped(outcome);
      return outcome;
    }
    ASSIGN_OR_RETURN(MakePlannerFunction* const make, LoadModule());
    return std::unique_ptr<Planner>(make(config_))->Solve(problem, options, context);
  }

 private:
  const DrlPpConfig config_;
};

}  // namespace

std::unique_ptr<Planner> MakeDrlPpPlannerOnDemand(DrlPpConfig config) {
  return std::make_unique<OnDemandDrlPp>(std::move(config));
}

std::unique_ptr<Planner> MakeDrlPpPlannerOnDemand() { return MakeDrlPpPlannerOnDemand({}); }

}  // namespace stagewright
