// What the machine's processor is, for people and as the name of its kind of device.
#pragma once

#include <string>

namespace stagewright {

// "AMD EPYC 9554P 64-Core Processor (25-17), AVX512": vendor and model, family and model number,
// which tell apart what a hypervisor gives one name, and the vector extension that LibTorch uses.
// `cpuinfo` is the text of /proc/cpuinfo; processors that do not name themselves there go by their
// numbers, or by `machine` ("aarch64").
std::string CpuName(const std::string& cpuinfo, const std::string& machine,
                    const std::string& extension);

// The name of the processor of this machine.
std::string ThisCpuName();

}  // namespace stagewright
