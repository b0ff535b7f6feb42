// What a worker tells of its machine's GPUs when it registers, for people who look after it.
#pragma once

#include <optional>
#include <string>

#include "stagewright/v1/gpu.pb.h"

namespace stagewright {

// Asks the driver, through the library of this name. Nothing where there is neither a driver nor
// `needed`: a GPU that the worker offers. A driver that does not answer is told as trouble.
std::optional<v1::GpuMachine> DescribeGpuMachine(bool needed,
                                                 const std::string& library = "libnvidia-ml.so.1");

}  // namespace stagewright
