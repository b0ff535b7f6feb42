// A DeviceMover for tests that copies between devices of one process, and is as strict as NCCL: the
// rounds of a device run one after the other, each until every part has met its counterpart, and
// parts find each other by nothing but the order in which they start.
#pragma once

#include <memory>

#include "worker_daemon/transport/arranged/device_mover.h"

namespace stagewright::testing {

std::unique_ptr<DeviceMover> MakeCopyMover();

}  // namespace stagewright::testing
