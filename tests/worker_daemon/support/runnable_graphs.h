// Small graphs written by hand, their weights and data, for tests of single parts of the engine.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/graph/graph.h"
#include "common/program/program.h"

namespace stagewright::testing {

inline Argument Value(int node, int output = 0) { return {ValueRef{NodeId(node), output}}; }
inline Argument Param(int id) { return {ParameterId(id)}; }
inline Argument In(int id) { return {InputId(id)}; }
inline Argument Int(int64_t value) { return {SymInt{0, value}}; }
inline Argument Batch(int64_t scale = 1) { return {SymInt{scale, 0}}; }
inline Argument Real(double value) { return {value}; }
inline Argument Bool(bool value) { return {value}; }
inline Argument Nothing() { return {None{}}; }
inline Argument List(std::vector<Argument> items) { return {std::move(items)}; }

// Float64 unless said otherwise; -1 in a shape is the number of samples.
TensorMeta Meta(std::vector<int64_t> shape, DType dtype = DType::kFloat64);

// Collects nodes and parameters; parameters of type float64 with reproducible values.
class GraphMaker {
 public:
  int AddInput(std::string name, std::vector<int64_t> shape, DType dtype = DType::kFloat64);
  int AddParameter(std::string name, std::vector<int64_t> shape, bool trainable = true);
  int AddNode(std::string target, std::vector<Argument> args, std::vector<TensorMeta> outputs,
              std::vector<NamedArgument> kwargs = {});
  // x @ w^T + b with new parameters.
  int AddLinear(std::string name, Argument x, int64_t in, int64_t out);
  Graph Finish(int loss, int prediction = -1, LossReduction reduction = LossReduction::kMean);

  GraphData data;
};

// A path in a temporary directory of the process, which is removed at its end.
std::string TempPath(const std::string& name);

// Writes reproducible parameters of the graph to a file; returns its path.
std::string WriteWeights(const Graph& graph, const std::string& name);

// A stage with all the graph's nodes, on device 0.
ProgramStage WholeGraph(const Graph& graph);

// Writes tensors to a `.safetensors` file.
void WriteTensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors);

// All tensors of a `.safetensors` file.
absl::StatusOr<std::map<std::string, at::Tensor>> ReadTensors(const std::string& path);

// Reproducible normal values.
at::Tensor Random(std::vector<int64_t> shape, uint64_t seed, at::ScalarType dtype = at::kDouble);

// |a - b| / max(|b|, tiny), in the Euclidean norm.
double RelativeError(const at::Tensor& a, const at::Tensor& b);

}  // namespace stagewright::testing
