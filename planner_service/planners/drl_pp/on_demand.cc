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

class OnDemandPlanner : public Planner {
 public:
  explicit OnDemandPlanner(DrlPpConfig config) : config_(std::move(config)) {}
  std::string name() const override { return "drl_pp"; }
  std::string description() const override {
    return "DRL-PP: a policy network learns cuts and placement by trial";
  }
  PlannerAbilities abilities() const override { return {.asynchronous = true}; }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    if (context.Expired()) {
      Outcome outcome;
      outcome.termination = Termination::kLimit;
      outcome.reason = "the search was stopped by its deadline or cancelled";
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
  return std::make_unique<OnDemandPlanner>(std::move(config));
}

std::unique_ptr<Planner> MakeDrlPpPlannerOnDemand() { return MakeDrlPpPlannerOnDemand({}); }

}  // namespace stagewright
