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

// A spec as it is meant.
struct Spec {
  int cpus = 0;           // 0: it is of GPUs.
  std::vector<int> gpus;  // None: all that there are.
};

absl::StatusOr<Spec> ParseSpec(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  Spec spec;
  if (parts.size() != 2) return BadSpec(text);
  if (parts[0] == "cpu") {
    if (!absl::SimpleAtoi(parts[1], &spec.cpus) || spec.cpus < 1 || spec.cpus > kMostCpuDevices)
      return BadSpec(text);
    return spec;
  }
  if (parts[0] != "cuda") return BadSpec(text);
  if (parts[1] == "all") return spec;
  for (absl::string_view item : absl::StrSplit(parts[1], ',')) {
    int index = -1;
    if (!absl::SimpleAtoi(item, &index) || index < 0) return BadSpec(text);
    if (std::find(spec.gpus.begin(), spec.gpus.end(), index) != spec.gpus.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("devices \"", text, "\": GPU ", index, " is named twice"));
    }
    spec.gpus.push_back(index);
  }
  return spec;
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

Offer OfferCpus(int n, const Named& named, Bytes memory_per_device) {
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

absl::StatusOr<Offer> OfferGpus(const std::string& spec, std::vector<int> chosen,
                                const Named& named, Bytes memory_per_device) {
  const std::vector<Accelerator> present = Accelerators();
  for (int index : chosen) {
    if (index < static_cast<int>(present.size())) continue;
    return absl::InvalidArgumentError(absl::StrCat("devices \"", spec, "\": there is no GPU ",
                                                   index, "; ", present.size(), " can be used; ",
                                                   GpusOfTheDriver()));
  }
  if (present.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "devices \"", spec, "\": no GPU that this build can use; ", GpusOfTheDriver()));
  }
  if (chosen.empty()) {
    for (size_t i = 0; i < present.size(); ++i) chosen.push_back(static_cast<int>(i));
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

absl::Status CheckDevices(const DevicesAsked& asked) {
  RETURN_IF_ERROR(ParseSpec(asked.spec).status());
  return asked.kind.empty() ? absl::OkStatus() : PresetDeviceKind(asked.kind).status();
}

absl::StatusOr<Offer> OfferDevices(const DevicesAsked& asked) {
  ASSIGN_OR_RETURN(const Spec spec, ParseSpec(asked.spec));
  Named named;
  if (!asked.kind.empty()) {
    ASSIGN_OR_RETURN(named, PresetDeviceKind(asked.kind));
  }
  if (spec.cpus > 0) return OfferCpus(spec.cpus, named, asked.memory_per_device);
  return OfferGpus(asked.spec, spec.gpus, named, asked.memory_per_device);
}

}  // namespace stagewright
