#include "clients/cli/files/timelines.h"

#include <utility>

#include "clients/cli/files/write_file.h"
#include "common/program/trace.h"
#include "common/wire/strategy_proto.h"

namespace stagewright::cli {
namespace {

absl::StatusOr<std::vector<TraceEvent>> Timeline(const v1::Plan& plan) {
  std::vector<TraceEvent> events;
  for (const v1::TraceEvent& proto : plan.evaluation().timeline()) {
    ASSIGN_OR_RETURN(TraceEvent event, FromProto(proto));
    events.push_back(event);
  }
  return events;
}

}  // namespace

absl::Status SaveTimelines(const v1::PlanResponse& response,
                           const std::vector<std::string>& device_names, const std::string& path) {
  std::vector<std::pair<std::string, std::vector<TraceEvent>>> traces;
  ASSIGN_OR_RETURN(traces.emplace_back("plan", std::vector<TraceEvent>()).second,
                   Timeline(response.best()));
  if (traces[0].second.empty())
    return absl::FailedPreconditionError("the plan carries no timeline");
  if (response.sequential().evaluation().timeline_size() > 0) {
    ASSIGN_OR_RETURN(traces.emplace_back("sequential", std::vector<TraceEvent>()).second,
                     Timeline(response.sequential()));
  }
  return WriteFile(path, ChromeTrace(traces, device_names));
}

}  // namespace stagewright::cli
