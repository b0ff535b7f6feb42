// A builder of executable graphs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/graph/graph.h"

namespace stagewright::testing {

// Builds graphs of ATen nodes over a batch of samples. Shapes are per sample: the batch dimension
// is put in front.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { data.name = std::move(name); }

  Argument Feature(const std::string& name, std::vector<int64_t> shape,
                   DType dtype = DType::kFloat32);
  Argument Weight(const std::string& name, std::vector<int64_t> shape, bool trainable = true);
  // One output of `shape` per sample, of type float32.
  Argument Add(const std::string& target, std::vector<Argument> args, std::vector<int64_t> shape);
  // Add with any outputs; the answer is output 0.
  Argument AddWith(const std::string& target, std::vector<Argument> args,
                   std::vector<TensorMeta> outputs);
  // "aten.linear.default" with a new weight and bias.
  Argument Linear(Argument x, int64_t in, int64_t out);
  // Mean squared error against the input "target"; makes it the loss.
  void Loss(Argument prediction, std::vector<int64_t> shape);

  Graph Build() const;

  GraphData data;
};

// A constant argument.
Argument Number(int64_t value);
TensorMeta Batched(std::vector<int64_t> shape, DType dtype = DType::kFloat32);
TensorMeta Fixed(std::vector<int64_t> shape, DType dtype = DType::kFloat32);
NodeId NodeOf(const Argument& value);

}  // namespace stagewright::testing
