// Strategy and Program <-> stagewright.v1. Shapes are converted; validity is the evaluator's and
// Validate's to judge.
#pragma once

#include "common/base/status.h"
#include "common/program/program.h"
#include "common/program/trace.h"
#include "common/strategy/strategy.h"
#include "stagewright/v1/planner_service.pb.h"
#include "stagewright/v1/program.pb.h"
#include "stagewright/v1/strategy.pb.h"

namespace stagewright {

v1::OptimizerSharding ToProto(OptimizerSharding sharding);
OptimizerSharding FromProto(v1::OptimizerSharding sharding);  // None where unspecified.
v1::BatchStatistics ToProto(BatchStatistics statistics);
BatchStatistics FromProto(v1::BatchStatistics statistics);  // Whole where unspecified.

v1::OperatorSplit ToProto(const OperatorSplit& split);
OperatorSplit FromProto(const v1::OperatorSplit& proto);

v1::Strategy ToProto(const Strategy& strategy);
Strategy FromProto(const v1::Strategy& proto);

v1::Program ToProto(const Program& program);
// INVALID_ARGUMENT if an action's kind is not known.
absl::StatusOr<Program> FromProto(const v1::Program& proto);

v1::TraceEvent ToProto(const TraceEvent& event);
absl::StatusOr<TraceEvent> FromProto(const v1::TraceEvent& proto);

}  // namespace stagewright
