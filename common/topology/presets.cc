// Clusters by name. Rates are public data-sheet figures reduced, where a comment says so, to what
// well-tuned programs reach.
#include "common/topology/presets.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/one_line.h"
#include "common/topology/cluster.h"
#include "common/topology/uniform.h"

namespace stagewright {
namespace {

struct Preset {
  const char* name;
  const char* description;
  HierarchicalSpec spec;
};

// NVIDIA's V100 data sheet (SXM2): 15.7 TFLOP/s fp32, 125 TFLOP/s on tensor cores, 900 GB/s HBM2;
// the STREAM-like rate that micro-benchmarks report is about 790 GB/s. The programs measured on
// Summit keep fp32 tensors and ask cuBLAS for tensor-core products (FlexFlow's linear and attention
// kernels pass CUBLAS_GEMM_DEFAULT_TENSOR_OP), which convert their operands. GraphPipe's appendix
// A.3 says what that reaches: its sequential Transformer does 645 GFLOP a sample, and 114 samples/s
// on four devices are 18 TFLOP/s each, bubbles and memory-bound operators included - more than the
// fp32 units have. 40 TFLOP/s, of which large products reach 60 %, gives 113 there; and 181, 330
// and 652 on 8, 16 and 32 devices, where the paper measured 190, 288 and 609.
// Half-efficiency: tensor-core kernels tile the output 256 x 128 over 80 SMs, so one wave at an
// inner dimension of about 800 is 4 GFLOP; a product loses half a wave on average.
DeviceKind V100() { return {"v100-16g", 40e12, 790e9, 5 * kMicrosecond, 2e9}; }

// A100 data sheet (SXM4 80 GB): 156 TFLOP/s TF32, PyTorch's choice for fp32 convolutions and,
// when allowed, products; 2,039 GB/s HBM2e, about 85 % reachable. Tiles of 256 x 128 over 108 SMs.
DeviceKind A100() { return {"a100-80g", 156e12, 1.75e12, 4 * kMicrosecond, 2.5e9}; }

// H100 data sheet (SXM5): 989 TFLOP/s dense bf16, 3.35 TB/s HBM3, about 85 % reachable. Tiles of
// 256 x 128 over 132 SMs with deeper pipelines.
DeviceKind H100() { return {"h100-80g", 989e12, 2.85e12, 4 * kMicrosecond, 4e9}; }

// What the engine costs on a CPU beyond operators, in calls of small ones, so that it holds on
// faster and slower cores. From the table "Engine" of docs/benchmarks.md (release build, idle
// machine), for calls of 8 us: a pass of one or two tiny operators took 6.9 us, of which about 4
// are not theirs; two passes and two packed messages took 38 us, so that a message took 12 us at
// each end. `engine_bench` prints these and what a step costs, which is not known yet.
constexpr double kCallsOfPass = 0.5;
constexpr double kCallsOfMessage = 1.5;
constexpr double kCallsOfStep = 0;

// One core at 3 GHz with two 8-wide fp32 FMA units is 96 GFLOP/s at most; LibTorch's products reach
// about half on small shapes. 10 GB/s is one core's share of two DDR4 channels. Dispatching an ATen
// operator with autograd costs some microseconds.
DeviceKind Cpu() { return WithFixedCosts({"cpu-core", 60e9, 10e9, 8 * kMicrosecond, 1e5}); }

const std::array<Preset, 4>& Presets() {
  static const std::array<Preset, 4> presets = {{
      // Summit as GraphPipe uses it: 4 V100 of 16 GB per node; NVLink 2 gives each device two
      // bricks (25 GB/s each and direction) to a neighbour; 100 Gb/s EDR InfiniBand, shared by the
      // node. 14.5 GiB remain after the CUDA context and libraries.
      {"summit",
       "4 x V100 16 GB a node, NVLink 2, one 100 Gb/s EDR InfiniBand port a node",
       {"",
        1,
        4,
        V100(),
        14 * kGiB + kGiB / 2,
        {"", 6 * kMicrosecond, 45e9},
        {"", 10 * kMicrosecond, 11.5e9},
        1}},
      // DGX A100: 12 NVLink 3 bricks to NVSwitch, 300 GB/s a direction, about 80 % reached by NCCL;
      // eight 200 Gb/s HDR ports.
      {"dgx-a100",
       "8 x A100 80 GB a node, NVSwitch, eight 200 Gb/s HDR InfiniBand ports a node",
       {"",
        1,
        8,
        A100(),
        78 * kGiB,
        {"", 5 * kMicrosecond, 240e9},
        {"", 8 * kMicrosecond, 23e9},
        8}},
      // DGX H100: 18 NVLink 4 bricks to NVSwitch, 450 GB/s a direction, about 80 % reached; eight
      // 400 Gb/s NDR ports.
      {"dgx-h100",
       "8 x H100 80 GB a node, NVSwitch, eight 400 Gb/s NDR InfiniBand ports a node",
       {"",
        1,
        8,
        H100(),
        78 * kGiB,
        {"", 5 * kMicrosecond, 360e9},
        {"", 8 * kMicrosecond, 46e9},
        8}},
      // Worker processes on one machine that exchange tensors over shared memory.
      {"cpu",
       "1 CPU device of 4 GiB a node, tensors over shared memory of one machine",
       {"", 1, 1, Cpu(), 4 * kGiB, {"", 20 * kMicrosecond, 5e9}, {"", 20 * kMicrosecond, 5e9}, 1}},
  }};
  return presets;
}

absl::Status UnknownPreset(const std::string& name) {
  std::vector<std::string> known;
  for (const Preset& preset : Presets()) known.push_back(absl::StrCat(preset.name, ":N"));
  return absl::NotFoundError(absl::StrCat("there is no cluster preset \"", name, "\"; presets are ",
                                          absl::StrJoin(known, ", "),
                                          " with N nodes and uniform:N with N devices"));
}

}  // namespace

DeviceKind WithFixedCosts(DeviceKind kind) {
  if (kind.pass_overhead != 0 || kind.message_overhead != 0 || kind.step_overhead != 0) return kind;
  const auto call = static_cast<double>(kind.kernel_overhead);
  kind.pass_overhead = Nanos(std::llround(kCallsOfPass * call));
  kind.message_overhead = Nanos(std::llround(kCallsOfMessage * call));
  kind.step_overhead = Nanos(std::llround(kCallsOfStep * call));
  return kind;
}

absl::StatusOr<Cluster> ClusterPreset(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string base = name.substr(0, colon);
  if (base == "uniform") return UniformPreset(name);
  for (const Preset& preset : Presets()) {
    if (base != preset.name) continue;
    HierarchicalSpec spec = preset.spec;
    spec.name = name;
    const std::string count = colon == std::string::npos ? "" : name.substr(colon + 1);
    const char* end = count.data() + count.size();
    const auto parsed = std::from_chars(count.data(), end, spec.nodes);
    if (parsed.ec != std::errc() || parsed.ptr != end || spec.nodes < 1) {
      return OneLine(absl::InvalidArgumentError(
          absl::StrCat("cluster preset \"", name,
                       "\": give the number of nodes, 1 or more, as in \"", preset.name, ":2\"")));
    }
    auto cluster = MakeHierarchical(spec);
    if (!cluster.ok()) {
      return Annotate(cluster.status(), absl::StrCat("cluster preset \"", name, "\""));
    }
    return cluster;
  }
  return OneLine(UnknownPreset(name));
}

std::vector<std::pair<std::string, std::string>> ClusterPresets() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Preset& preset : Presets()) result.emplace_back(preset.name, preset.description);
  result.emplace_back("uniform",
                      "N equal devices for imported profiles, a link of 12.5 GB/s for each pair");
  return result;
}

}  // namespace stagewright
