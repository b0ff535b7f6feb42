// What workers tell of the GPUs of their machines, for people and scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "stagewright/v1/gpu.pb.h"

namespace stagewright::cli {

// A version as CUDA counts them: "13.0" for 13000.
std::string CudaVersionText(int32_t version);
// The same of NCCL: "2.28.9" for 22809.
std::string NcclVersionText(int32_t version);
// "heat", "power cap"
std::string SlowdownName(v1::GpuSlowdown slowdown);

nlohmann::json GpuMachineJson(const v1::GpuMachine& machine);

}  // namespace stagewright::cli
