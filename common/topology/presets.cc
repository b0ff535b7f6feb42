// Clusters by name. Rates are public data-sheet figures reduced, where a comment says so, to what
// well-tuned programs reach.
#include "common/topology/presets.h"

#include <array>
#include <charconv>
#include <optional>
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

// Time is linear in the work: `share` of the peak but for the time of `half` operations, which at
// work of `half` is half of the time. The first point is where launches hide the rest.
EfficiencyCurve Saturating(std::optional<ProductKind> operators, std::optional<ProductType> type,
                           double share, double half) {
  const auto at = [&](double flops) {
    return EfficiencyPoint{flops, share * flops / (flops + half)};
  };
  return {operators, type, {at(half / 16), at(half), at(16 * half), at(1024 * half)}};
}

// NVIDIA's V100 data sheet (SXM2): 15.7 TFLOP/s fp32, 125 TFLOP/s on tensor cores (fp16; neither
// bf16 nor TF32), 900 GB/s HBM2; the STREAM-like rate that micro-benchmarks report is about
// 790 GB/s. The programs measured on Summit keep fp32 tensors and ask cuBLAS for tensor-core
// products (FlexFlow's linear and attention kernels pass CUBLAS_GEMM_DEFAULT_TENSOR_OP), which
// convert their operands. GraphPipe's appendix A.3 says what that reaches: its sequential
// Transformer does 645 GFLOP a sample, and 114 samples/s on four devices are 18 TFLOP/s each,
// bubbles and memory-bound operators included - more than the fp32 units have. 40 TFLOP/s, of which
// large products reach 60 %, gives 113 there in plans whose sums do not overlap; and 181, 330 and
// 652 on 8, 16 and 32 devices, where the paper measured 190, 288 and 609. In fp16 the same 60 % are
// 75 TFLOP/s; Markidis et al. (IPDPS workshops 2018) measured 83 with cuBLAS at most.
// Half-efficiency: tensor-core kernels tile the output 256 x 128 over 80 SMs, so one wave at an
// inner dimension of about 800 is 4 GFLOP; a product loses half a wave on average.
DeviceKind V100() {
  DeviceKind kind = {"v100-16g", 40e12, 790e9, 5 * kMicrosecond, 2e9};
  kind.fp16_flops_per_second = 125e12;
  return kind;
}

// FlexFlow's programs on the V100: fitted to what GraphPipe measured, and not to its gains.
// Half-efficiency: micro-batches of 4 instead of 2 gain 10 % per sample in its section 7.5, which a
// layer of MMT does at 0.6 GFLOP. Rate: 33.5 TFLOP/s give 114 samples/s on four devices in appendix
// A.3, with SGD, as its example trains. (On 8, 16 and 32 devices plans come to 228, 455 and 913 by
// overlapping sums of gradients, which FlexFlow does not: it measured 190, 288 and 609.)
DeviceKind FlexFlowV100() { return {"v100-flexflow", 33.5e12, 790e9, 5 * kMicrosecond, 0.6e9}; }

// Shares of large products in bf16 are those of the "Maximum Achievable Matmul FLOPS" table of
// Bekman's Machine Learning Engineering (mean of 100 products, PyTorch 2.6 and 2.7): 271.2 of
// 312 TFLOP/s on A100 SXM, 794.5 of 989 on H100 SXM. Other types are taken to reach the same.
// Attention, which PyTorch runs as FlashAttention-2: at most 73 % of the peak on A100 (Dao, 2023)
// and 35 % on H100 (Shah et al., FlashAttention-3, 2024). Half-efficiency: as of the V100, from
// tiles of 256 x 128, and of 128 x 128 on the fp32 units.
std::vector<EfficiencyCurve> Curves(double share, double attention, double half) {
  std::vector<EfficiencyCurve> curves = {Saturating({}, {}, share, half),
                                         Saturating({}, ProductType::kFloat32, share, half / 2)};
  for (ProductType type : {ProductType::kBFloat16, ProductType::kFloat16})
    curves.push_back(Saturating(ProductKind::kAttention, type, attention, half));
  return curves;
}

// Programs of LibTorch: kernels are queued on streams, which the host fills while they run, and
// gradients are made and added up one by one. The kinds of the V100 stand for programs of the
// papers, by their times in full, and leave both out.
void RunLibTorch(DeviceKind& kind) { kind.asynchronous = kind.adds_gradients = true; }

// The three products of a head of 50,257 columns, 8,192 rows of 1,024 in bf16, took 8.75, 6.03 and
// 5.69 ms on an H100 (docs/benchmarks.md): cuBLAS takes kernels for rows that begin anywhere
// (cutlass_75_tensorop_bf16_s1688gemm_bf16_*_align1), which load number by number and reach 124
// TFLOP/s where others reach 794.5. Of the A100 nothing was measured, and nothing is said.
constexpr double kUnalignedOnHopper = 6.4;

// A100 data sheet (SXM4 80 GB): 19.5 TFLOP/s fp32, 156 TF32, 312 bf16 and fp16, dense; 2,039 GB/s
// HBM2e, about 85 % reachable. Tiles over 108 SMs.
DeviceKind A100() {
  DeviceKind kind = {"a100-80g", 19.5e12, 1.75e12, 4 * kMicrosecond, 2.5e9};
  kind.tf32_flops_per_second = 156e12;
  kind.bf16_flops_per_second = kind.fp16_flops_per_second = 312e12;
  RunLibTorch(kind);
  kind.efficiency = Curves(0.869, 0.73, 2.5e9);
  return kind;
}

// H100 data sheet (SXM5): 67 TFLOP/s fp32, 494.5 TF32, 989 bf16 and fp16, dense; 3.35 TB/s HBM3,
// about 85 % reachable. Tiles over 132 SMs with deeper pipelines.
DeviceKind H100() {
  DeviceKind kind = {"h100-80g", 67e12, 2.85e12, 4 * kMicrosecond, 4e9};
  kind.tf32_flops_per_second = 494.5e12;
  kind.bf16_flops_per_second = kind.fp16_flops_per_second = 989e12;
  RunLibTorch(kind);
  kind.unaligned_slowdown = kUnalignedOnHopper;
  kind.efficiency = Curves(0.803, 0.35, 4e9);
  return kind;
}

// H200 data sheet (SXM5): the units of the H100, 141 GB of HBM3e at 4.8 TB/s, about 85 % reachable.
DeviceKind H200() {
  DeviceKind kind = H100();
  kind.name = "h200-141g";
  kind.memory_bytes_per_second = 4.1e12;
  return kind;
}

// One core at 3 GHz with two 8-wide fp32 FMA units is 96 GFLOP/s at most; LibTorch's products reach
// about half on small shapes. 10 GB/s is one core's share of two DDR4 channels. Dispatching an ATen
// operator with autograd costs some microseconds.
// Workers measure their own cores, so that jobs use these figures only where they are told to.
DeviceKind Cpu() { return WithFixedCosts({"cpu-core", 60e9, 10e9, 8 * kMicrosecond, 1e5}); }

// Summit as GraphPipe uses it: 4 V100 of 16 GB per node; NVLink 2 gives each device two bricks
// (25 GB/s each and direction) to a neighbour; 100 Gb/s EDR InfiniBand, shared by the node. 14.5
// GiB remain after the CUDA context and libraries.
HierarchicalSpec Summit(DeviceKind kind) {
  return {"",
          1,
          4,
          std::move(kind),
          14 * kGiB + kGiB / 2,
          {"", 6 * kMicrosecond, 45e9},
          {"", 10 * kMicrosecond, 11.5e9},
          1};
}

// DGX H100 and H200: 18 NVLink 4 bricks to NVSwitch, 450 GB/s a direction, about 80 % reached;
// eight 400 Gb/s NDR ports.
HierarchicalSpec DgxHopper(DeviceKind kind, Bytes memory) {
  return {"",
          1,
          8,
          std::move(kind),
          memory,
          {"", 5 * kMicrosecond, 360e9},
          {"", 8 * kMicrosecond, 46e9},
          8};
}

const std::array<Preset, 6>& Presets() {
  static const std::array<Preset, 6> presets = {{
      {"summit", "4 x V100 16 GB a node, NVLink 2, one 100 Gb/s EDR InfiniBand port a node",
       Summit(V100())},
      {"summit-flexflow", "the same at the speed of FlexFlow's programs", Summit(FlexFlowV100())},
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
      {"dgx-h100", "8 x H100 80 GB a node, NVSwitch, eight 400 Gb/s NDR InfiniBand ports a node",
       DgxHopper(H100(), 78 * kGiB)},
      {"dgx-h200", "8 x H200 141 GB a node, NVSwitch, eight 400 Gb/s NDR InfiniBand ports a node",
       DgxHopper(H200(), 138 * kGiB)},
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

absl::StatusOr<DeviceKind> PresetDeviceKind(const std::string& name) {
  std::vector<std::string> known;
  for (const Preset& preset : Presets()) {
    const DeviceKind& kind = preset.spec.kind;
    if (kind.name == name) return kind;
    known.push_back(kind.name);
  }
  return OneLine(absl::NotFoundError(absl::StrCat("there is no device kind \"", name,
                                                  "\"; there are ", absl::StrJoin(known, ", "))));
}

}  // namespace stagewright
