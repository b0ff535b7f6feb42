#include "tests/worker_daemon/support/runnable_graphs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/data/safetensors_writer.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright::testing {
namespace {

DType FromScalarType(at::ScalarType type) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    if (ToScalarType(static_cast<DType>(i)) == type) return static_cast<DType>(i);
  }
  ADD_FAILURE() << "unexpected type";
  return DType::kFloat32;
}

// Gone at the end of the process.
class TempDirectory {
 public:
  TempDirectory()
      : path_(std::filesystem::path(::testing::TempDir()) /
              absl::StrCat("stagewright-engine-", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

TensorMeta Meta(std::vector<int64_t> shape, DType dtype) {
  TensorMeta meta{dtype, {}};
  for (int64_t dim : shape) meta.shape.push_back(dim < 0 ? SymInt{-dim, 0} : SymInt{0, dim});
  if (!shape.empty() && shape[0] < -1) meta.layout = SampleLayout{};  // Samples side by side.
  return meta;
}

int GraphMaker::AddInput(std::string name, std::vector<int64_t> shape, DType dtype) {
  data.inputs.push_back({std::move(name), Meta(std::move(shape), dtype), InputRole::kFeature});
  return static_cast<int>(data.inputs.size()) - 1;
}

int GraphMaker::AddParameter(std::string name, std::vector<int64_t> shape, bool trainable) {
  data.parameters.push_back(
      {std::move(name), DType::kFloat64, std::move(shape), trainable, !trainable, {}});
  return static_cast<int>(data.parameters.size()) - 1;
}

int GraphMaker::AddNode(std::string target, std::vector<Argument> args,
                        std::vector<TensorMeta> outputs, std::vector<NamedArgument> kwargs) {
  Node node;
  node.name = absl::StrCat("n", data.nodes.size());
  node.target = std::move(target);
  node.args = std::move(args);
  node.kwargs = std::move(kwargs);
  node.outputs = std::move(outputs);
  data.nodes.push_back(std::move(node));
  return static_cast<int>(data.nodes.size()) - 1;
}

int GraphMaker::AddLinear(std::string name, Argument x, int64_t in, int64_t out) {
  const int weight = AddParameter(name + ".weight", {out, in});
  const int bias = AddParameter(name + ".bias", {out});
  return AddNode("aten.linear.default", {std::move(x), Param(weight), Param(bias)},
                 {Meta({-1, out})});
}

Graph GraphMaker::Finish(int loss, int prediction, LossReduction reduction) {
  data.name = "test";
  data.loss = ValueRef{NodeId(loss), 0};
  if (prediction >= 0) data.prediction = ValueRef{NodeId(prediction), 0};
  data.loss_reduction = reduction;
  auto graph = Graph::Create(data);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

std::string TempPath(const std::string& name) {
  static const TempDirectory directory;
  std::string file = name;  // Names of parametrised tests hold slashes.
  std::replace(file.begin(), file.end(), '/', '_');
  return directory.path() / file;
}

at::Tensor Random(std::vector<int64_t> shape, uint64_t seed, at::ScalarType dtype) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
}

void WriteTensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<TensorView> views;
  std::vector<at::Tensor> kept;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(tensor.detach().contiguous());
    const at::Tensor& flat = kept.back();
    views.push_back({name,
                     FromScalarType(flat.scalar_type()),
                     flat.sizes().vec(),
                     {static_cast<const std::byte*>(flat.data_ptr()), flat.nbytes()}});
  }
  const absl::Status status = WriteSafetensors(path, views);
  EXPECT_TRUE(status.ok()) << status;
}

absl::StatusOr<std::map<std::string, at::Tensor>> ReadTensors(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::map<std::string, at::Tensor> tensors;
  for (const TensorView& view : file.tensors()) {
    at::Tensor tensor = at::empty(view.shape, ToScalarType(view.dtype));
    std::memcpy(tensor.data_ptr(), view.data.data(), view.data.size());
    tensors[view.name] = std::move(tensor);
  }
  return tensors;
}

std::string WriteWeights(const Graph& graph, const std::string& name) {
  std::map<std::string, at::Tensor> tensors;
  uint64_t seed = 1;
  for (const Parameter& parameter : graph.parameters()) {
    if (parameter.data.has_value()) continue;
    tensors[parameter.name] =
        (Random(parameter.shape, seed++) * 0.3).to(ToScalarType(parameter.dtype));
  }
  const std::string path = TempPath(name);
  WriteTensors(path, tensors);
  return path;
}

ProgramStage WholeGraph(const Graph& graph) {
  ProgramStage stage;
  for (int32_t v : graph.dag().order()) stage.nodes.emplace_back(v);
  stage.devices = {DeviceId(0)};
  return stage;
}

double RelativeError(const at::Tensor& a, const at::Tensor& b) {
  const double norm = b.norm().item<double>();
  return (a - b).norm().item<double>() / std::max(norm, 1e-30);
}

}  // namespace stagewright::testing
