#include "clients/cli/view/explanation_json.h"

#include <utility>

#include "common/base/units.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/evaluator/explain.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright::cli {

nlohmann::json ExplanationJson(const v1::Explanation& proto) {
  const Explanation explanation = FromProto(proto);
  const auto what_if = [](const WhatIf& what) {
    nlohmann::json json = {{"change", what.change}};
    if (what.step_time) {
      json["iteration_seconds"] = ToSeconds(*what.step_time);
    } else {
      json["reason"] = what.reason;
    }
    return json;
  };
  nlohmann::json cuts = nlohmann::json::array();
  for (const CutReport& cut : explanation.cuts) {
    cuts.push_back({{"from", cut.from.value()},
                    {"to", cut.to.value()},
                    {"smaller", what_if(cut.smaller)},
                    {"larger", what_if(cut.larger)}});
  }
  nlohmann::json levers = nlohmann::json::array();
  for (const WhatIf& lever : explanation.levers) {
    levers.push_back(what_if(lever));
    if (lever.step_time && *lever.step_time > 0) {
      levers.back()["speedup"] =
          static_cast<double>(explanation.step_time) / static_cast<double>(*lever.step_time);
    }
  }
  return {{"iteration_seconds", ToSeconds(explanation.step_time)},
          {"compute_seconds", ToSeconds(explanation.compute)},
          {"links_seconds", ToSeconds(explanation.links)},
          {"memory_seconds", ToSeconds(explanation.memory)},
          {"bubble_seconds", ToSeconds(explanation.bubble)},
          {"binds", BindingName(explanation.binding)},
          {"bottleneck_stage", explanation.bottleneck.value()},
          {"bottleneck_device", explanation.bottleneck_device},
          {"cuts", std::move(cuts)},
          {"cuts_left_out", explanation.cuts_left_out},
          {"levers", std::move(levers)}};
}

}  // namespace stagewright::cli
