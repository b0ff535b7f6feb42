// A whole plan of an imported profile, with a deadline. Four bytes choose planner, devices,
// mini-batch and options; the rest is the profile, of the format that the fifth byte tells: "{" is
// Piper's. STAGEWRIGHT_FUZZ_PLANNERS=NAME,... keeps it to these planners.
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/topology/presets.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/importers/profile.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

std::vector<std::string> Planners() {
  const char* const chosen = std::getenv("STAGEWRIGHT_FUZZ_PLANNERS");
  if (chosen != nullptr) return absl::StrSplit(chosen, ',');
  std::vector<std::string> names;
  for (const auto& planner : stagewright::ListPlanners()) names.push_back(planner.name);
  return names;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  constexpr size_t kHead = 4;
  if (size <= kHead) return 0;
  const std::string_view text = fuzz::Text(data + kHead, size - kHead);
  const auto profile =
      text[0] == '{' ? ImportPiper(text, "profile") : ImportPipeDream(text, "profile");
  fuzz::CheckRefusal(profile.status());
  if (!profile.ok() || profile->graph.size() > 60) return 0;

  static const std::vector<std::string> planners = Planners();
  const char* const clusters[] = {"uniform:1", "uniform:3", "uniform:2x2,memory=1MiB",
                                  "uniform:4,bandwidth=1e6,memory=8MiB"};
  const auto cluster = ClusterPreset(clusters[data[1] % 4]);
  if (!cluster.ok()) fuzz::Fail(cluster.status().ToString());
  PlanRequest request;
  request.graph = &profile->graph;
  request.cluster = &*cluster;
  request.planner = planners[data[0] % planners.size()];
  request.mini_batch = 1 + data[2] % 32;
  request.options.allow_replicas = (data[3] & 1) != 0;
  request.options.sequential = (data[3] & 2) != 0;
  request.options.split_backward = (data[3] & 4) != 0;
  request.options.max_loops = data[3] >> 3 & 3;
  request.options.per_stage_micro_batch = (data[3] & 32) != 0;
  request.options.recompute = static_cast<RecomputePolicy>((data[3] >> 6) % 3);
  SearchContext context(SearchContext::Clock::now() + std::chrono::milliseconds(200));
  const auto response = SolvePlan(request, context);
  fuzz::CheckRefusal(response.status());
  if (!response.ok()) return 0;
  if (!response->best && response->reason.empty()) fuzz::Fail("no plan, and no reason");
  if (response->best && response->best->evaluation.iteration_time < response->lower_bound)
    fuzz::Fail("faster than the lower bound of " + request.planner);
  return 0;
}
