#include "planner_service/election/answered_here.h"

#include <algorithm>
#include <array>

#include "absl/strings/strip.h"

namespace stagewright {

bool FollowersAnswer(absl::string_view method) {
  static constexpr std::array<absl::string_view, 6> kMethods = {
      "Explain", "ListPlanners", "Plan", "PlanStream", "Simulate", "Validate"};
  return absl::ConsumePrefix(&method, "/stagewright.v1.PlannerService/") &&
         std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
}

}  // namespace stagewright
