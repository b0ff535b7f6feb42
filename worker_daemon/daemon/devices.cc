#include "worker_daemon/daemon/devices.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/log/log.h"
#include "common/topology/device_kind.h"
#include "common/topology/presets.h"
#include "common/wire/topology_proto.h"
#include "worker_daemon/device/accelerators.h"
#include "worker_daemon/device/cpu_name.h"
#include "worker_daemon/device/device_rates.h"
#include "worker_daemon/device/host_memory.h"
#include "worker_daemon/device/nvml.h"
#include "worker_daemon/executor/engine_rates.h"

namespace stagewright {
namespace {

constexpr int kMostCpuDevices = 256;

absl::Status BadSpec(const std::string& spec) {
  return absl::InvalidArgumentError(
      absl::StrCat("devices \"", spec, "\": expected cpu:N, cuda:all or a list like cuda:0,2"));
}

// Says what the driver shows, so that a build that cannot use it is told from a machine without.
std::string GpusOfTheDriver() {
  const auto nvml = Nvml::Open();
  if (!nvml.ok()) return std::string(nvml.status().message());
  const auto gpus = (*nvml)->Gpus();
  if (!gpus.ok()) return std::string(gpus.status().message());
  std::vector<std::string> names;
  for (const GpuReading& gpu : *gpus) names.push_back(gpu.name);
  return absl::StrCat("the driver shows ", gpus->size(), names.empty() ? "" : ": ",
                      absl::StrJoin(names, ", "));
}

DeviceKind MeasureCpu() {
  const DeviceKind rates = MeasureDeviceRates("cpu", ThisCpuName());
  absl::StatusOr<DeviceKind> kind = MeasureEngine(rates, "cpu");
  if (kind.ok()) return *std::move(kind);
  // Such as too many open files: plans are worse, jobs run.
  Log(LogLevel::kWarning, "costs of passes were not measured", {{"why", kind.status().message()}});
  return WithFixedCosts(rates);
}

using Named = std::optional<DeviceKind>;  // The kind that the devices are said to be of.

absl::StatusOr<Offer> OfferCpus(const std::string& spec, const std::string& count,
                                const Named& named, Bytes memory_per_device) {
  int n = 0;
  if (!absl::SimpleAtoi(count, &n) || n < 1 || n > kMostCpuDevices) return BadSpec(spec);
  if (memory_per_device == 0) {
    memory_per_device =
        static_cast<Bytes>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE) / 2 / n;
  }
  Offer offer;
  offer.kinds.push_back(ToProto(named.has_value() ? *named : MeasureCpu()));
  for (int i = 0; i < n; ++i) {
    offer.devices.push_back({absl::StrCat("cpu", i), "cpu", memory_per_device});
    offer.kind_of.push_back(0);
  }
  return offer;
}

absl::StatusOr<Offer> OfferGpus(const std::string& spec, const std::string& list,
                                const Named& named, Bytes memory_per_device) {
  const std::vector<Accelerator> present = Accelerators();
  std::vector<int> chosen;
  if (list == "all") {
    for (size_t i = 0; i < present.size(); ++i) chosen.push_back(static_cast<int>(i));
    if (chosen.empty())
      return absl::InvalidArgumentError(absl::StrCat(
          "devices \"", spec, "\": no GPU that this build can use; ", GpusOfTheDriver()));
  } else {
    for (absl::string_view item : absl::StrSplit(list, ',')) {
      int index = -1;
      if (!absl::SimpleAtoi(item, &index) || index < 0) return BadSpec(spec);
      if (index >= static_cast<int>(present.size())) {
        return absl::InvalidArgumentError(absl::StrCat("devices \"", spec, "\": there is no GPU ",
                                                       index, "; ", present.size(),
                                                       " can be used; ", GpusOfTheDriver()));
      }
      if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("devices \"", spec, "\": GPU ", index, " is named twice"));
      }
      chosen.push_back(index);
    }
  }
  Offer offer;
  for (int index : chosen) {
    const std::string torch_device = absl::StrCat("cuda:", index);
    const std::string& name = named.has_value() ? named->name : present[index].name;
    size_t kind = 0;
    while (kind < offer.kinds.size() && offer.kinds[kind].name() != name) ++kind;
    if (kind == offer.kinds.size()) {
      offer.kinds.push_back(
          ToProto(named.has_value() ? *named : MeasureDeviceRates(torch_device, name)));
    }
    Bytes memory = memory_per_device;
    if (memory == 0) {
      ReleaseFreedMemory();  // What the measurements have left.
      ASSIGN_OR_RETURN(memory, MemoryForJobs(index));
    }
    offer.devices.push_back({absl::StrCat("cuda", index), torch_device, memory});
    offer.kind_of.push_back(static_cast<int32_t>(kind));
  }
  return offer;
}

}  // namespace

absl::StatusOr<Offer> OfferDevices(const DevicesAsked& asked) {
  Named named;
  if (!asked.kind.empty()) {
    ASSIGN_OR_RETURN(named, PresetDeviceKind(asked.kind));
  }
  const std::vector<std::string> parts = absl::StrSplit(asked.spec, absl::MaxSplits(':', 1));
  if (parts.size() == 2 && parts[0] == "cpu")
    return OfferCpus(asked.spec, parts[1], named, asked.memory_per_device);
  if (parts.size() == 2 && parts[0] == "cuda")
    return OfferGpus(asked.spec, parts[1], named, asked.memory_per_device);
  return BadSpec(asked.spec);
}

}  // namespace stagewright
