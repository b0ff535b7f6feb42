// A shared library with NVML's binary interface and two GPUs, for machines without a driver. What
// goes wrong is said by the environment variable NVML_DOUBLE, read at each call:
//   no_driver   initialisation fails
//   lost        the second GPU no longer answers for its memory
//   slice       the second GPU does not tell its utilisation, clocks, nor what it reaches
//   hot         the second GPU is slowed down for its heat, by its hardware
//   apart       the GPUs do not read each other's memory
//   old         the driver runs no CUDA newer than 11.4
// NVML_DOUBLE_OPEN counts initialisations that have no shutdown yet.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int gpus[2] = {0, 1};

bool Goes(const char* wrong) {
  const char* said = std::getenv("NVML_DOUBLE");
  return said != nullptr && std::strcmp(said, wrong) == 0;
}
int IndexOf(void* handle) { return *static_cast<int*>(handle); }
void Count(int by) {
  const char* open = std::getenv("NVML_DOUBLE_OPEN");
  char text[16];
  std::snprintf(text, sizeof(text), "%d", (open == nullptr ? 0 : std::atoi(open)) + by);
  setenv("NVML_DOUBLE_OPEN", text, 1);
}

}  // namespace

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};

int nvmlInit_v2() {
  if (Goes("no_driver")) return 9;
  Count(1);
  return 0;
}
int nvmlShutdown() {
  Count(-1);
  return 0;
}
const char* nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index > 1) return 2;
  *handle = &gpus[index];
  return 0;
}
int nvmlDeviceGetName(void* handle, char* name, unsigned length) {
  std::snprintf(name, length, "Double %c", 'A' + IndexOf(handle));
  return 0;
}
int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-00000000-0000-0000-0000-00000000000%d", IndexOf(handle));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  if (IndexOf(handle) == 1 && Goes("lost")) return 15;
  memory->total = 150ull << 30;
  memory->free = (100ull << 30) + static_cast<unsigned>(IndexOf(handle));
  memory->used = memory->total - memory->free;
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::snprintf(version, length, "%s", Goes("old") ? "470.57.02" : "580.82.07");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = Goes("old") ? 11040 : 13000;
  return 0;
}
int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* clock) {
  if (type != 1) return 2;
  if (IndexOf(handle) == 1 && Goes("slice")) return 3;
  *clock = IndexOf(handle) == 1 && Goes("hot") ? 600 : 1900;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void* handle, int type, unsigned* clock) {
  if (type != 1) return 2;
  if (IndexOf(handle) == 1 && Goes("slice")) return 3;
  *clock = 1980;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  constexpr unsigned long long kIdle = 0x1, kHardware = 0x8, kHardwareHeat = 0x40;
  if (IndexOf(handle) == 1 && Goes("slice")) return 3;
  *reasons = IndexOf(handle) == 1 && Goes("hot") ? kHardware | kHardwareHeat : kIdle;
  return 0;
}
int nvmlDeviceGetP2PStatus(void* from, void* to, int access, int* status) {
  constexpr int kChipsetNotSupported = 1;
  if (access != 0 || from == to) return 2;
  if (Goes("slice")) return 3;
  *status = Goes("apart") ? kChipsetNotSupported : 0;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* handle, Utilization* utilization) {
  if (IndexOf(handle) == 1 && Goes("slice")) return 3;
  utilization->gpu = 40 + static_cast<unsigned>(IndexOf(handle));
  utilization->memory = 7;
  return 0;
}
}
