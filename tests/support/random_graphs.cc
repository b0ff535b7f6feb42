#include "tests/support/random_graphs.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"

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

std::vector<int32_t> RandomPredecessors(Rng& rng, int32_t node) {
  std::vector<int32_t> before;
  if (node == 0) return before;
  const int64_t count = Uniform(rng, 0, 9) == 0 ? 0 : Uniform(rng, 1, 3);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t nearest = std::min<int64_t>(node, Uniform(rng, 1, 6));
    before.push_back(static_cast<int32_t>(node - nearest));
  }
  std::sort(before.begin(), before.end());
  before.erase(std::unique(before.begin(), before.end()), before.end());
  return before;
}

}  // namespace

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

Graph RandomProfile(Rng& rng, int32_t nodes) {
  std::vector<Work> work(nodes);
  const Bytes largest = Uniform(rng, 0, 1) == 0 ? kMiB : 64 * kMiB;
  for (int32_t v = 0; v < nodes; ++v) {
    work[v].after = RandomPredecessors(rng, v);
    if (Uniform(rng, 0, 4) == 0) continue;  // Costs nothing.
    work[v].forward = Uniform(rng, 0, 200) * kMicrosecond;
    work[v].backward = Uniform(rng, 0, 2) * work[v].forward;
    work[v].activation_bytes = Bytes(Uniform(rng, 0, largest.count()));
    const bool has_parameters = Uniform(rng, 0, 1) == 1;
    const Bytes parameters(Uniform(rng, 0, (16 * kMiB).count()));
    if (has_parameters) work[v].parameter_bytes = parameters;
  }
  return ProfiledGraph(work);
}

Graph RandomNetwork(Rng& rng, int32_t nodes) {
  constexpr int64_t kWidth = 64;
  GraphData data;
  data.name = "network";
  const TensorMeta features{DType::kFloat32, {{1, 0}, {0, kWidth}}};
  data.inputs = {{"x", features, InputRole::kFeature}};
  std::vector<bool> read(nodes);
  for (int32_t v = 0; v < nodes; ++v) {
    Node node;
    node.name = absl::StrCat("v", v);
    node.outputs = {features};
    std::vector<int32_t> before = RandomPredecessors(rng, v);
    for (int32_t u : before) read[u] = true;
    if (before.size() >= 2) {
      node.target = "aten.add.Tensor";
      node.args = {{ValueRef{NodeId(before[0])}}, {ValueRef{NodeId(before[1])}}};
      read[before.back()] = before.size() == 2;
    } else {
      Argument source{InputId(0)};
      if (!before.empty()) source = {ValueRef{NodeId(before[0])}};
      node.args = {source};
      node.target = "aten.relu.default";
      if (before.empty() || Uniform(rng, 0, 1) == 0) {
        node.target = "aten.linear.default";
        node.args.push_back({ParameterId(static_cast<int64_t>(data.parameters.size()))});
        Parameter weight;
        weight.name = absl::StrCat("w", v);
        weight.shape = {kWidth, kWidth};
        weight.trainable = Uniform(rng, 0, 3) > 0;
        data.parameters.push_back(std::move(weight));
      }
    }
    data.nodes.push_back(std::move(node));
  }
  // All ends come together in one list, whose mean is the loss.
  Argument::List ends;
  for (int32_t v = 0; v < nodes; ++v) {
    if (!read[v]) ends.push_back({ValueRef{NodeId(v)}});
  }
  const auto width = static_cast<int64_t>(ends.size()) * kWidth;
  Node join;
  join.name = "join";
  join.target = "aten.cat.default";
  join.args = {{std::move(ends)}, {SymInt{0, 1}}};
  join.outputs = {{DType::kFloat32, {{1, 0}, {0, width}}}};
  data.nodes.push_back(std::move(join));
  Node loss;
  loss.name = "loss";
  loss.target = "aten.mean.default";
  loss.args = {{ValueRef{NodeId(nodes)}}};
  loss.outputs = {{DType::kFloat32, {}}};
  data.nodes.push_back(std::move(loss));
  data.loss = ValueRef{NodeId(nodes + 1)};
  auto graph = Graph::Create(std::move(data));
  CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace stagewright::testing
