#include "worker_daemon/device/nvml.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stagewright {
namespace {

// NVML's binary interface, as far as it is used. Its header is not part of every CUDA toolkit.
using Code = int;
using Handle = void*;
constexpr Code kSuccess = 0;
constexpr Code kNotSupported = 3;
constexpr unsigned kTextSize = 96;  // Enough for names and uuids, by the reference.
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;  // Percent.
};
constexpr int kMultiprocessorClock = 1;
constexpr int kPeerReads = 0;  // The access between GPUs that is asked for.
constexpr int kPeerOk = 0;

// Reasons for a lower clock that are worth telling; a GPU that has nothing to do has one, too.
constexpr uint64_t kHardwareSlows = 0x8, kHardwareSaysWhy = 0x40 | 0x80;
struct Reason {
  uint64_t bits;
  GpuSlowdown slowdown;
};
constexpr Reason kReasons[] = {
    {0x20 | 0x40, GpuSlowdown::kHeat},  // As the driver or the hardware sees it.
    {0x4, GpuSlowdown::kPowerCap},
    {0x80, GpuSlowdown::kPowerBrake},
    {kHardwareSlows, GpuSlowdown::kHardware},
    {0x2, GpuSlowdown::kClockSetting},
};

}  // namespace

struct Nvml::Functions {
  ~Functions() {
    if (initialised) shutdown();
    if (library != nullptr) dlclose(library);
  }
  template <typename F>
  absl::Status Load(const char* symbol, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, symbol));
    if (function != nullptr) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("NVML has no function ", symbol));
  }
  // As Load, for what older drivers lack.
  template <typename F>
  void LoadIfThere(const char* symbol, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, symbol));
  }
  absl::Status Check(Code code, absl::string_view what) const {
    if (code == kSuccess) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("NVML: ", what, ": ", error_string(code)));
  }

  void* library = nullptr;
  bool initialised = false;
  Code (*init)() = nullptr;
  Code (*shutdown)() = nullptr;
  const char* (*error_string)(Code) = nullptr;
  Code (*count)(unsigned*) = nullptr;
  Code (*by_index)(unsigned, Handle*) = nullptr;
  Code (*name)(Handle, char*, unsigned) = nullptr;
  Code (*uuid)(Handle, char*, unsigned) = nullptr;
  Code (*memory)(Handle, MemoryInfo*) = nullptr;
  Code (*utilization)(Handle, Utilization*) = nullptr;
  Code (*driver_version)(char*, unsigned) = nullptr;
  // Null where the library lacks them.
  Code (*driver_cuda)(int*) = nullptr;
  Code (*clock)(Handle, int, unsigned*) = nullptr;
  Code (*highest_clock)(Handle, int, unsigned*) = nullptr;
  Code (*throttle_reasons)(Handle, unsigned long long*) = nullptr;
  Code (*peer_status)(Handle, Handle, int, int*) = nullptr;
};

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}
Nvml::~Nvml() = default;

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  auto functions = std::make_unique<Functions>();
  Functions& f = *functions;
  f.library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (f.library == nullptr) {
    const char* reason = dlerror();
    return absl::UnavailableError(
        absl::StrCat("cannot load NVML: ", reason == nullptr ? library : std::string(reason)));
  }
  for (const absl::Status& status :
       {f.Load("nvmlInit_v2", f.init), f.Load("nvmlShutdown", f.shutdown),
        f.Load("nvmlErrorString", f.error_string), f.Load("nvmlDeviceGetCount_v2", f.count),
        f.Load("nvmlDeviceGetHandleByIndex_v2", f.by_index), f.Load("nvmlDeviceGetName", f.name),
        f.Load("nvmlDeviceGetUUID", f.uuid), f.Load("nvmlDeviceGetMemoryInfo", f.memory),
        f.Load("nvmlDeviceGetUtilizationRates", f.utilization),
        f.Load("nvmlSystemGetDriverVersion", f.driver_version)}) {
    if (!status.ok()) return status;
  }
  f.LoadIfThere("nvmlSystemGetCudaDriverVersion_v2", f.driver_cuda);
  f.LoadIfThere("nvmlDeviceGetClockInfo", f.clock);
  f.LoadIfThere("nvmlDeviceGetMaxClockInfo", f.highest_clock);
  f.LoadIfThere("nvmlDeviceGetCurrentClocksThrottleReasons", f.throttle_reasons);
  f.LoadIfThere("nvmlDeviceGetP2PStatus", f.peer_status);
  const absl::Status started = f.Check(f.init(), "initialisation");
  if (!started.ok()) return started;
  f.initialised = true;
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

absl::StatusOr<GpuReading> Nvml::Read(unsigned index) const {
  const Functions& f = *functions_;
  const std::string gpu = absl::StrCat("GPU ", index);
  Handle handle = nullptr;
  absl::Status status = f.Check(f.by_index(index, &handle), gpu);
  if (!status.ok()) return status;
  std::array<char, kTextSize> name{}, uuid{};
  MemoryInfo memory{};
  status = f.Check(f.name(handle, name.data(), kTextSize), absl::StrCat(gpu, "'s name"));
  status.Update(f.Check(f.uuid(handle, uuid.data(), kTextSize), absl::StrCat(gpu, "'s uuid")));
  status.Update(f.Check(f.memory(handle, &memory), absl::StrCat(gpu, "'s memory")));
  Utilization utilization{};
  const Code told = f.utilization(handle, &utilization);
  if (told != kNotSupported)  // A slice of a GPU does not tell.
    status.Update(f.Check(told, absl::StrCat(gpu, "'s utilisation")));
  if (!status.ok()) return status;
  // What follows is not told by every GPU or driver.
  unsigned clock = 0, highest_clock = 0;
  if (f.clock == nullptr || f.clock(handle, kMultiprocessorClock, &clock) != kSuccess) clock = 0;
  if (f.highest_clock == nullptr ||
      f.highest_clock(handle, kMultiprocessorClock, &highest_clock) != kSuccess)
    highest_clock = 0;
  unsigned long long reasons = 0;
  if (f.throttle_reasons == nullptr || f.throttle_reasons(handle, &reasons) != kSuccess)
    reasons = 0;
  if ((reasons & kHardwareSaysWhy) != 0) reasons &= ~kHardwareSlows;
  GpuReading reading = {
      .name = name.data(),
      .uuid = uuid.data(),
      .memory = static_cast<Bytes>(memory.total),
      .free_memory = static_cast<Bytes>(memory.free),
      .utilisation_percent = told == kSuccess ? static_cast<int>(utilization.gpu) : -1,
      .clock_mhz = static_cast<int>(clock),
      .highest_clock_mhz = static_cast<int>(highest_clock)};
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bits) != 0) reading.slowdowns.push_back(reason.slowdown);
  }
  return reading;
}

absl::StatusOr<DriverReading> Nvml::Driver() const {
  const Functions& f = *functions_;
  std::array<char, kTextSize> version{};
  const absl::Status status =
      f.Check(f.driver_version(version.data(), kTextSize), "version of the driver");
  if (!status.ok()) return status;
  int cuda = 0;
  if (f.driver_cuda == nullptr || f.driver_cuda(&cuda) != kSuccess) cuda = 0;
  return DriverReading{version.data(), cuda};
}

std::optional<bool> Nvml::HasPeerAccess(unsigned from, unsigned to) const {
  const Functions& f = *functions_;
  Handle handles[2] = {};
  int status = kPeerOk;
  if (f.peer_status == nullptr || f.by_index(from, &handles[0]) != kSuccess ||
      f.by_index(to, &handles[1]) != kSuccess ||
      f.peer_status(handles[0], handles[1], kPeerReads, &status) != kSuccess)
    return std::nullopt;
  return status == kPeerOk;
}

absl::StatusOr<std::vector<GpuReading>> Nvml::Gpus() const {
  unsigned count = 0;
  const absl::Status status = functions_->Check(functions_->count(&count), "number of GPUs");
  if (!status.ok()) return status;
  std::vector<GpuReading> gpus;
  for (unsigned i = 0; i < count; ++i) {
    absl::StatusOr<GpuReading> gpu = Read(i);
    if (!gpu.ok()) return gpu.status();
    gpus.push_back(*std::move(gpu));
  }
  return gpus;
}

}  // namespace stagewright
