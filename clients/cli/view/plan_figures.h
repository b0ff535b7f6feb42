// Figures of a plan that its forms for people and for programs both have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/units.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

int32_t DevicesUsed(const v1::Strategy& strategy);

// The device's that needs most.
Bytes PeakMemory(const v1::Evaluation& evaluation);
Bytes PeakMemory(const v1::Plan& plan);

// By how much the plan takes longer than the bound; nothing without a bound.
std::optional<double> GapRatio(const v1::PlanResponse& response);

// "feasible"
std::string TerminationText(v1::Termination termination);

}  // namespace stagewright::cli
