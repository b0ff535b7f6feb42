#include "tests/support/graph_builder.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright::testing {

Argument Number(int64_t value) { return {SymInt{0, value}}; }

TensorMeta Fixed(std::vector<int64_t> shape, DType dtype) {
  TensorMeta meta{dtype, {}};
  for (int64_t dim : shape) meta.shape.push_back({0, dim});
  return meta;
}

TensorMeta Batched(std::vector<int64_t> shape, DType dtype) {
  TensorMeta meta = Fixed(std::move(shape), dtype);
  meta.shape.insert(meta.shape.begin(), SymInt{1, 0});
  return meta;
}

NodeId NodeOf(const Argument& value) { return std::get<ValueRef>(value.value).node; }

Argument GraphBuilder::Feature(const std::string& name, std::vector<int64_t> shape, DType dtype) {
  data.inputs.push_back({name, Batched(std::move(shape), dtype), InputRole::kFeature});
  return {InputId(static_cast<int64_t>(data.inputs.size()) - 1)};
}

Argument GraphBuilder::Weight(const std::string& name, std::vector<int64_t> shape, bool trainable) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = std::move(shape);
  parameter.trainable = trainable;
  data.parameters.push_back(std::move(parameter));
  return {ParameterId(static_cast<int64_t>(data.parameters.size()) - 1)};
}

Argument GraphBuilder::Add(const std::string& target, std::vector<Argument> args,
                           std::vector<int64_t> shape) {
  return AddWith(target, std::move(args), {Batched(std::move(shape))});
}

Argument GraphBuilder::AddWith(const std::string& target, std::vector<Argument> args,
                               std::vector<TensorMeta> outputs) {
  Node node;
  node.name = absl::StrCat("n", data.nodes.size());
  node.target = target;
  node.args = std::move(args);
  node.outputs = std::move(outputs);
  data.nodes.push_back(std::move(node));
  return {ValueRef{NodeId(static_cast<int64_t>(data.nodes.size()) - 1), 0}};
}

Argument GraphBuilder::Linear(Argument x, int64_t in, int64_t out) {
  const std::string name = absl::StrCat("linear", data.parameters.size());
  const Argument weight = Weight(name + ".weight", {out, in});
  const Argument bias = Weight(name + ".bias", {out});
  return Add("aten.linear.default", {std::move(x), weight, bias}, {out});
}

void GraphBuilder::Loss(Argument prediction, std::vector<int64_t> shape) {
  data.inputs.push_back({"target", Batched(std::move(shape)), InputRole::kTarget});
  const Argument target{InputId(static_cast<int64_t>(data.inputs.size()) - 1)};
  const Argument loss =
      AddWith("aten.mse_loss.default", {std::move(prediction), target}, {Fixed({})});
  data.loss = std::get<ValueRef>(loss.value);
}

Graph GraphBuilder::Build() const {
  auto graph = Graph::Create(data);
  if (!graph.ok()) std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
  CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace stagewright::testing
