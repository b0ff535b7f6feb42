#include "clients/cli/jobs/file_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/artifacts/artifact_name.h"
#include "common/artifacts/tensor_part.h"
#include "common/data/data_files.h"
#include "common/data/dataset.h"
#include "common/data/index_check.h"
#include "common/data/safetensors.h"
#include "common/data/sample_lengths.h"
#include "common/data/weights_check.h"
#include "common/graph/aten.h"
#include "common/graph/lengths.h"
#include "common/wire/graph_proto.h"

namespace stagewright::cli {
namespace {

constexpr Bytes kMostBytes = kGiB;  // What is read of an input, at most.
constexpr Bytes kChunkBytes = 4 * kMiB;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Any file of the data set is on this machine.
bool IsSeen(const Graph& graph, const std::string& path) {
  return std::any_of(graph.inputs().begin(), graph.inputs().end(), [&](const Input& input) {
    const auto files = DataFilesOf(path, input.name);
    return files.ok() && Exists(files->front());
  });
}

// The graph itself looks for numbers that are none.
bool ExpectsNans(const Graph& graph) {
  constexpr std::array<std::string_view, 3> kLookers = {"isnan", "isfinite", "nan_to_num"};
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    return std::find(kLookers.begin(), kLookers.end(), AtenName(node.target)) != kLookers.end();
  });
}

// All bits of the exponent are set, and some of the fraction.
template <typename Bits>
bool IsNan(const std::byte* data, Bits exponent) {
  Bits bits;
  std::memcpy(&bits, data, sizeof(bits));
  const Bits sign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  return static_cast<Bits>(bits & ~sign) > exponent;
}

bool IsNan(DType dtype, const std::byte* data) {
  switch (dtype) {
    case DType::kFloat64:
      return IsNan<uint64_t>(data, 0x7ff0000000000000u);
    case DType::kFloat32:
      return IsNan<uint32_t>(data, 0x7f800000u);
    case DType::kFloat16:
      return IsNan<uint16_t>(data, 0x7c00u);
    case DType::kBFloat16:
      return IsNan<uint16_t>(data, 0x7f80u);
    default:
      return false;
  }
}

// The first of `count` elements that is no number.
std::optional<int64_t> FirstNan(DType dtype, const std::vector<std::byte>& data, Bytes size) {
  const Bytes step = SizeOf(dtype);
  for (Bytes at = 0; at + step <= size; at += step) {
    if (IsNan(dtype, data.data() + at.count())) return at / step;
  }
  return std::nullopt;
}

// Gather says which index is none that the graph takes. Samples [begin, end) are looked at.
absl::Status CheckSamples(const Input& input, InputId id, const Dataset& data, int64_t begin,
                          int64_t end, bool nans_end_it) {
  const Bytes sample_bytes = std::max<Bytes>(data.SampleBytes(id), 1);
  end = std::min(end, begin + std::max<int64_t>(1, kMostBytes / sample_bytes));
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / sample_bytes);
  std::vector<std::byte> bytes;
  for (int64_t first = begin; first < end; first += chunk) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(chunk, end - first)));
    std::iota(indices.begin(), indices.end(), first);
    const Bytes size = indices.size() * sample_bytes;
    bytes.resize(static_cast<size_t>(size));
    RETURN_IF_ERROR(data.Gather(id, indices, bytes.data()));
    if (!nans_end_it) continue;
    const auto found = FirstNan(input.meta.dtype, bytes, size);
    if (!found.has_value()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        data.NameOf(id, first + *found * SizeOf(input.meta.dtype) / sample_bytes),
        " holds a nan, which would end the job; --on-nan skip leaves steps with such samples out"));
  }
  return absl::OkStatus();
}

absl::Status CheckWeightsFile(const Graph& graph, const std::string& path,
                              const Artifacts& artifacts) {
  if (IsArtifactName(path)) {
    RETURN_IF_ERROR(CheckArtifactName(path));
    if (!artifacts.has_store()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Artifact artifact, artifacts.Find(path));
    ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadHeader(artifact));
    return CheckWeights(graph, header);
  }
  if (!Exists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const SafetensorsFile weights, SafetensorsFile::Open(path));
  return CheckWeights(graph, weights.header());
}

// The samples of one length, that of the graph.
absl::Status CheckLength(const Graph& graph, const std::string& path, const SampleLengths& lengths,
                         int32_t length, int64_t most, bool nans_end_it) {
  std::vector<InputId> inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i) inputs.emplace_back(i);
  ASSIGN_OR_RETURN(const Dataset data, Dataset::Open(graph, inputs, path, lengths, length));
  const IndexCheck indices(graph);
  for (InputId id : inputs) {
    const Input& input = graph.input(id);
    const bool nans = nans_end_it && IsFloating(input.meta.dtype);
    if (!nans && !indices.Applies(id)) continue;
    for (const LengthRun& run : lengths.runs()) {
      if (run.length != length) continue;
      RETURN_IF_ERROR(CheckSamples(input, id, data, run.begin, std::min(run.end, most), nans));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckData(const std::vector<const Graph*>& graphs, const std::string& path,
                       int64_t mini_batch, int64_t most, bool nans_end_it) {
  if (path.empty() || !IsSeen(*graphs[0], path)) return absl::OkStatus();
  if (graphs.size() == 1) {
    // Says which inputs are missing or of different numbers.
    std::vector<InputId> inputs;
    for (size_t i = 0; i < graphs[0]->inputs().size(); ++i) inputs.emplace_back(i);
    RETURN_IF_ERROR(Dataset::Open(*graphs[0], inputs, path).status());
  }
  ASSIGN_OR_RETURN(const SampleLengths lengths, SampleLengths::Read(graphs, path));
  for (int32_t l = 0; l < lengths.lengths(); ++l) {
    const int64_t samples = lengths.SamplesOf(l);
    if (samples < mini_batch && (samples > 0 || graphs.size() == 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": it has ", samples, " samples",
                       graphs.size() == 1 ? "" : absl::StrCat(" of ", SampleText(*graphs[l])),
                       ", fewer than a mini-batch of ", mini_batch));
    }
    // Mini-batches of one length take samples from anywhere.
    const int64_t first = graphs.size() == 1 ? most : std::numeric_limits<int64_t>::max();
    RETURN_IF_ERROR(CheckLength(*graphs[l], path, lengths, l, first, nans_end_it));
  }
  return absl::OkStatus();
}

// Without shuffling, a job of few steps reads no more than the first.
int64_t MostSamples(const v1::JobSpec& spec) {
  int64_t most = 0;
  const bool bounded = spec.no_shuffle() && spec.steps() > 0 &&
                       !__builtin_mul_overflow(spec.steps(), spec.mini_batch(), &most);
  return bounded ? most : std::numeric_limits<int64_t>::max();
}

}  // namespace

absl::Status CheckFiles(const Graph& graph, const v1::JobSpec& spec, const Artifacts& artifacts) {
  const bool stops =
      spec.on_nan() == v1::NAN_POLICY_UNSPECIFIED || spec.on_nan() == v1::NAN_POLICY_STOP;
  ASSIGN_OR_RETURN(const std::vector<Graph> lengths, LengthsFromProto(spec.graph(), graph));
  std::vector<const Graph*> graphs = {&graph};
  for (const Graph& length : lengths) graphs.push_back(&length);
  const absl::Status results[] = {
      CheckWeightsFile(graph, spec.weights_path(), artifacts),
      CheckData(graphs, spec.data_path(), spec.mini_batch(), MostSamples(spec),
                stops && !ExpectsNans(graph)),
      CheckData(graphs, spec.evaluation_data_path(), /*mini_batch=*/1,
                std::numeric_limits<int64_t>::max(), /*nans_end_it=*/false)};
  for (const absl::Status& status : results) {
    // Workers may be other users.
    if (!absl::IsPermissionDenied(status)) RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace stagewright::cli
