#include "tests/support/test_graphs.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright::testing {
namespace {

std::vector<int32_t> Shuffled(Rng& rng, int32_t n) {
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int32_t i = n - 1; i > 0; --i) std::swap(order[i], order[Uniform(rng, 0, i)]);
  return order;
}

// A block of a random series-parallel order: its text, extremes and smallest vertex.
struct Block {
  std::string text;
  std::vector<int32_t> all, minimal, maximal;
  int32_t smallest = 0;
};

struct Generator {
  Rng& rng;
  std::vector<Dag::Edge> edges;

  Block Make(std::vector<int32_t> vertices, bool series) {
    if (vertices.size() == 1) {
      const int32_t v = vertices[0];
      return {absl::StrCat(v), {v}, {v}, {v}, v};
    }
    std::vector<Block> children;
    const auto parts = Uniform(rng, 2, std::min<int64_t>(4, static_cast<int64_t>(vertices.size())));
    size_t begin = 0;
    for (int64_t p = 0; p < parts; ++p) {
      const auto left = static_cast<int64_t>(vertices.size() - begin) - (parts - 1 - p);
      const auto take = p + 1 == parts ? left : Uniform(rng, 1, left);
      children.push_back(
          Make({vertices.begin() + begin, vertices.begin() + begin + take}, !series));
      begin += take;
    }
    if (!series) {
      std::sort(children.begin(), children.end(),
                [](const Block& a, const Block& b) { return a.smallest < b.smallest; });
    }
    return series ? Join(children, "S(") : Join(children, "P(");
  }

  Block Join(const std::vector<Block>& children, const char* kind) {
    const bool series = *kind == 'S';
    Block block{kind, {}, {}, {}, children[0].smallest};
    auto append = [](std::vector<int32_t>& to, const std::vector<int32_t>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (size_t i = 0; i < children.size(); ++i) {
      absl::StrAppend(&block.text, i > 0 ? " " : "", children[i].text);
      if (series && i > 0) {
        for (int32_t u : children[i - 1].maximal) {
          for (int32_t v : children[i].minimal) edges.emplace_back(u, v);
        }
        // Implied edges, as residual connections are.
        const int32_t u = block.all[Uniform(rng, 0, static_cast<int64_t>(block.all.size()) - 1)];
        if (Uniform(rng, 0, 1) == 1) edges.emplace_back(u, children[i].all[0]);
      }
      append(block.all, children[i].all);
      if (!series || i == 0) append(block.minimal, children[i].minimal);
      if (!series || i + 1 == children.size()) append(block.maximal, children[i].maximal);
      block.smallest = std::min(block.smallest, children[i].smallest);
    }
    block.text += ')';
    return block;
  }
};

}  // namespace

int64_t Uniform(Rng& rng, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1));
}

Dag RandomDag(Rng& rng, int32_t n, double density) {
  const std::vector<int32_t> order = Shuffled(rng, n);
  std::vector<Dag::Edge> edges;
  for (int32_t i = 0; i < n; ++i) {
    for (int32_t j = i + 1; j < n; ++j) {
      if (static_cast<double>(rng() % 1'000'000) < density * 1e6) {
        edges.emplace_back(order[i], order[j]);
      }
    }
  }
  auto dag = Dag::Create(n, std::move(edges));
  CHECK(dag.ok());
  return *std::move(dag);
}

SeriesParallelCase RandomSeriesParallel(Rng& rng, int32_t n) {
  Generator generator{rng, {}};
  const Block root = generator.Make(Shuffled(rng, n), Uniform(rng, 0, 1) == 1);
  auto dag = Dag::Create(n, generator.edges);
  CHECK(dag.ok());
  return {*std::move(dag), root.text};
}

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

Graph RandomGraph(Rng& rng, int32_t nodes) {
  constexpr int64_t kWidth = 16;
  GraphBuilder builder("random");
  std::vector<Argument> batched = {builder.Feature("x", {kWidth}), builder.Feature("y", {kWidth})};
  std::vector<Argument> fixed;
  auto any = [&](const std::vector<Argument>& from) {
    // Recent values more often, so that graphs are deep.
    const auto n = static_cast<int64_t>(from.size());
    return from[std::max(Uniform(rng, 0, n - 1), Uniform(rng, 0, n - 1))];
  };
  for (int32_t i = 0; i < nodes; ++i) {
    const int64_t pick = Uniform(rng, 0, 19);
    if (pick < 6) {
      batched.push_back(builder.Linear(any(batched), kWidth, kWidth));
    } else if (pick < 10) {
      batched.push_back(builder.Add("aten.relu.default", {any(batched)}, {kWidth}));
    } else if (pick < 14) {
      batched.push_back(builder.Add("aten.add.Tensor", {any(batched), any(batched)}, {kWidth}));
    } else if (pick < 16) {
      Argument::List list = {any(batched), any(batched), any(batched)};
      const Argument joined =
          builder.Add("aten.cat.default", {{std::move(list)}, Number(1)}, {3 * kWidth});
      batched.push_back(builder.Linear(joined, 3 * kWidth, kWidth));
    } else if (pick == 16) {
      fixed.push_back(builder.AddWith("aten.arange.default", {Number(kWidth)}, {Fixed({kWidth})}));
    } else if (pick == 17) {
      const Argument weight = builder.Weight(absl::StrCat("w", i), {kWidth});
      fixed.push_back(builder.AddWith("aten.exp.default", {weight}, {Fixed({kWidth})}));
    } else if (pick == 18 && !fixed.empty()) {
      batched.push_back(builder.Add("aten.mul.Tensor", {any(batched), any(fixed)}, {kWidth}));
    } else {
      // A tensor with the batch in its second dimension cannot be cut.
      TensorMeta turned{DType::kFloat32, {{0, kWidth}, {1, 0}}};
      const Argument t =
          builder.AddWith("aten.transpose.int", {any(batched), Number(0), Number(1)}, {turned});
      batched.push_back(builder.Add("aten.transpose.int", {t, Number(0), Number(1)}, {kWidth}));
    }
  }
  Argument::List tail(batched.end() - std::min<size_t>(3, batched.size()), batched.end());
  const auto width = static_cast<int64_t>(tail.size()) * kWidth;
  const Argument all = builder.Add("aten.cat.default", {{std::move(tail)}, Number(1)}, {width});
  builder.Loss(builder.Linear(all, width, 1), {1});
  return builder.Build();
}

}  // namespace stagewright::testing
