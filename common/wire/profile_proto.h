// OperatorProfile <-> stagewright.v1.DeviceProfile.
#pragma once

#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "stagewright/v1/profile.pb.h"

namespace stagewright {

v1::DeviceProfile ToProto(const ProfiledDevice& device, const MeasuredOperators& operators);

// Errors of Check(OperatorProfile); INVALID_ARGUMENT for a signature that is given twice.
absl::Status Merge(const v1::DeviceProfile& proto, OperatorProfile& profile);

}  // namespace stagewright
