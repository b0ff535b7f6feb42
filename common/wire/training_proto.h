// How a job trains, on the wire: fields of JobSpec. LossScaleRule does not travel.
#pragma once

#include "common/base/status.h"
#include "common/training/training_spec.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {

Optimizer FromProto(v1::Optimizer optimizer);  // Unspecified is Adam: the most memory.
v1::Optimizer ToProto(Optimizer optimizer);
// Unspecified is the graph's. INVALID_ARGUMENT with `of` before the field.
absl::StatusOr<Precision> FromProto(v1::Precision precision, absl::string_view of);
v1::Precision ToProto(Precision precision);
// The spec's `checkpoints`, halfway, too, if the job may start again after a loss. REQUIRES: it has
// them, unless the answer does not matter.
CheckpointPolicy CheckpointsFromProto(const v1::JobSpec& spec);

// INVALID_ARGUMENT names the field, with "spec." before it, of an enum without a value that is
// known: an optimizer has to be chosen, the others have defaults. Numbers are not checked.
absl::StatusOr<TrainingSpec> TrainingFromProto(const v1::JobSpec& spec);

// Replaces the fields that TrainingFromProto reads.
void SetTraining(const TrainingSpec& training, v1::JobSpec& spec);

}  // namespace stagewright
