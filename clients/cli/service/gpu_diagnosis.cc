#include "clients/cli/service/gpu_diagnosis.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cli/view/gpu_view.h"

namespace stagewright::cli {
namespace {

// A clock below this share of the highest is worth a look where something slows the GPU down.
constexpr double kSlow = 0.8;

std::string Join(const std::set<std::string>& parts) { return absl::StrJoin(parts, "; "); }

// What a worker's driver cannot do for it, and whether nothing runs for that; empty if all is well.
struct DriverTrouble {
  Verdict verdict = Verdict::kGood;
  std::string text;
};

DriverTrouble TroubleOf(const v1::GpuMachine& machine) {
  if (!machine.trouble().empty()) return {Verdict::kBad, machine.trouble()};
  const int32_t runs = machine.driver_cuda(), wants = machine.runtime_cuda();
  if (runs == 0 || wants <= runs) return {};
  const std::string text =
      absl::StrCat("driver ", machine.driver_version(), " runs CUDA ", CudaVersionText(runs),
                   ", the worker has ", CudaVersionText(wants));
  // Within a major version old drivers run new programs, but for what needs new functions.
  return {runs / 1000 < wants / 1000 ? Verdict::kBad : Verdict::kWarning, text};
}

// Each GPU of all workers once, with the name that people know it by.
struct SeenGpu {
  std::string name;
  const v1::Gpu* gpu;
};

std::vector<SeenGpu> GpusOf(const v1::ListWorkersResponse& workers) {
  std::vector<SeenGpu> seen;
  std::set<std::string> uuids;
  for (const v1::Worker& worker : workers.workers()) {
    const v1::GpuMachine& machine = worker.gpu_machine();
    for (int i = 0; i < machine.gpus_size(); ++i) {
      if (!uuids.insert(machine.gpus(i).uuid()).second) continue;
      seen.push_back({absl::StrCat(worker.address(), " GPU ", i), &machine.gpus(i)});
    }
  }
  return seen;
}

}  // namespace

Finding CheckGpuDrivers(const v1::ListWorkersResponse& workers) {
  Verdict verdict = Verdict::kGood;
  std::set<std::string> versions, troubles;
  for (const v1::Worker& worker : workers.workers()) {
    if (!worker.has_gpu_machine()) continue;
    if (!worker.gpu_machine().driver_version().empty())
      versions.insert(worker.gpu_machine().driver_version());
    const DriverTrouble trouble = TroubleOf(worker.gpu_machine());
    verdict = std::max(verdict, trouble.verdict);
    if (trouble.verdict != Verdict::kGood)
      troubles.insert(absl::StrCat(worker.name(), ": ", trouble.text));
  }
  const std::string seen = absl::StrCat("driver ", absl::StrJoin(versions, ", "));
  if (troubles.empty()) return {Verdict::kGood, "GPU drivers", seen, ""};
  return {verdict, "GPU drivers", Join(troubles),
          "see what nvidia-smi says there; install a driver that runs the worker's CUDA "
          "(docs/gpu.md), or reset a GPU that is lost, and start the worker anew"};
}

Finding CheckNccl(const v1::ListWorkersResponse& workers) {
  std::map<int32_t, std::set<std::string>> by_version;
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.gpu_machine().nccl() != 0)
      by_version[worker.gpu_machine().nccl()].insert(worker.name());
  }
  std::vector<std::string> versions;
  for (const auto& [version, names] : by_version) {
    versions.push_back(by_version.size() == 1 ? NcclVersionText(version)
                                              : absl::StrCat(NcclVersionText(version), " (",
                                                             absl::StrJoin(names, ", "), ")"));
  }
  const std::string seen = absl::StrJoin(versions, "; ");
  if (by_version.size() <= 1) return {Verdict::kGood, "NCCL", seen, ""};
  return {Verdict::kBad, "NCCL", seen,
          "give all workers one NCCL: install one image everywhere, or name one library in "
          "LD_LIBRARY_PATH; until then --device-transport host keeps jobs running"};
}

Finding CheckPeerAccess(const v1::ListWorkersResponse& workers) {
  std::set<std::string> apart;
  const std::vector<SeenGpu> gpus = GpusOf(workers);
  for (const SeenGpu& seen : gpus) {
    for (const int32_t other : seen.gpu->no_peer_access())
      apart.insert(absl::StrCat(seen.name, " to ", other));
  }
  if (apart.empty()) {
    return {Verdict::kGood, "GPU peers",
            absl::StrCat(gpus.size(), " GPUs, each reads those beside it"), ""};
  }
  return {Verdict::kWarning, "GPU peers", absl::StrCat("no access: ", Join(apart)),
          "messages between them go through host memory: see nvidia-smi topo -p2p r, and whether "
          "ACS or an IOMMU of the machine (virtual ones have them on) or MIG forbids it"};
}

Finding CheckGpuClocks(const v1::ListWorkersResponse& workers) {
  std::set<std::string> slow;
  const std::vector<SeenGpu> gpus = GpusOf(workers);
  bool hot = false;
  for (const SeenGpu& seen : gpus) {
    const v1::Gpu& gpu = *seen.gpu;
    const double share = gpu.highest_clock_mhz() == 0
                             ? 1
                             : static_cast<double>(gpu.clock_mhz()) / gpu.highest_clock_mhz();
    std::vector<std::string> why;
    for (const int said : gpu.slowdowns()) {
      const auto slowdown = static_cast<v1::GpuSlowdown>(said);
      // Power is capped wherever a GPU has enough to do, and clocks are set on purpose.
      const bool usual =
          slowdown == v1::GPU_SLOWDOWN_POWER_CAP || slowdown == v1::GPU_SLOWDOWN_CLOCK_SETTING;
      if (usual && share >= kSlow) continue;
      hot = hot || !usual;
      why.push_back(SlowdownName(slowdown));
    }
    if (why.empty()) continue;
    slow.insert(absl::StrCat(seen.name, " at ", gpu.clock_mhz(), " of ", gpu.highest_clock_mhz(),
                             " MHz: ", absl::StrJoin(why, ", ")));
  }
  if (slow.empty())
    return {Verdict::kGood, "GPU clocks", absl::StrCat("nothing slows ", gpus.size(), " down"), ""};
  return {Verdict::kWarning, "GPU clocks", Join(slow),
          hot ? "look at cooling and power of these machines (nvidia-smi -q -d PERFORMANCE), and "
                "start their workers anew to look again: plans reckon with the rates they measured"
              : "nvidia-smi -rac and -rgc undo clocks that somebody set, -pl raises the limit of "
                "power; start the workers anew, since plans reckon with the rates they measured"};
}

std::vector<Finding> CheckGpus(const v1::ListWorkersResponse& workers) {
  const auto& all = workers.workers();
  const bool any = std::any_of(all.begin(), all.end(),
                               [](const v1::Worker& worker) { return worker.has_gpu_machine(); });
  if (!any) return {};
  std::vector<Finding> findings = {CheckGpuDrivers(workers)};
  if (std::any_of(all.begin(), all.end(),
                  [](const v1::Worker& worker) { return worker.gpu_machine().nccl() != 0; }))
    findings.push_back(CheckNccl(workers));
  if (GpusOf(workers).empty()) return findings;
  findings.push_back(CheckPeerAccess(workers));
  findings.push_back(CheckGpuClocks(workers));
  return findings;
}

}  // namespace stagewright::cli
