// What splitting a backward pass in two halves costs: the time of both halves against that of the
// whole pass, on one layer of a Transformer, and the bytes that are held before, between and after.
//
//   split_backward_bench [--width 512] [--heads 8] [--length 128] [--samples 4] [--rounds 60]
//                        [--threads 1]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/stage/stage_module.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT: the builders read like the graph.

struct Shape {
  int64_t width = 512, heads = 8, length = 128, samples = 4;
  int rounds = 60, threads = 1;
};

struct Layer {
  std::unique_ptr<Graph> graph;
  ProgramStage stage;
  ValueRef output;
};

Layer MakeLayer(const Shape& shape) {
  const int64_t width = shape.width, depth = width / shape.heads, length = shape.length;
  GraphMaker make;
  const int x = make.AddInput("x", {-1, length, width});
  const auto linear = [&](const std::string& name, int from, int64_t in, int64_t out) {
    const int node = make.AddLinear(name, Value(from), in, out);
    make.data.nodes[static_cast<size_t>(node)].outputs = {Meta({-1, length, out})};
    return node;
  };
  const auto norm = [&](const std::string& name, int from) {
    const int weight = make.AddParameter(name + ".weight", {width});
    const int bias = make.AddParameter(name + ".bias", {width});
    return make.AddNode("aten.layer_norm.default",
                        {Value(from), List({Int(width)}), Param(weight), Param(bias), Real(1e-5)},
                        {Meta({-1, length, width})});
  };
  const TensorMeta whole = Meta({-1, length, width});
  // Another stage, so that the layer has a gradient to send.
  const int start = make.AddNode("aten.tanh.default", {In(x)}, {whole});
  const int before = linear("before", start, width, width);
  const int qkv = linear("qkv", norm("first", before), width, 3 * width);
  const int parts =
      make.AddNode("aten.split.Tensor", {Value(qkv), Int(width), Int(-1)}, {whole, whole, whole});
  int heads[3];
  for (int i = 0; i < 3; ++i) {
    const int view =
        make.AddNode("aten.view.default",
                     {Value(parts, i), List({Batch(), Int(length), Int(shape.heads), Int(depth)})},
                     {Meta({-1, length, shape.heads, depth})});
    heads[i] = make.AddNode("aten.transpose.int", {Value(view), Int(1), Int(2)},
                            {Meta({-1, shape.heads, length, depth})});
  }
  const int attention = make.AddNode(
      "aten.scaled_dot_product_attention.default",
      {Value(heads[0]), Value(heads[1]), Value(heads[2]), Nothing(), Real(0), Bool(true)},
      {Meta({-1, shape.heads, length, depth})});
  const int back = make.AddNode("aten.transpose.int", {Value(attention), Int(1), Int(2)},
                                {Meta({-1, length, shape.heads, depth})});
  const int flat = make.AddNode("aten.reshape.default",
                                {Value(back), List({Batch(), Int(length), Int(width)})}, {whole});
  const int projected = linear("projection", flat, width, width);
  const int middle = make.AddNode("aten.add.Tensor", {Value(before), Value(projected)}, {whole});
  const int wide = linear("up", norm("second", middle), width, 4 * width);
  const int active =
      make.AddNode("aten.gelu.default", {Value(wide)}, {Meta({-1, length, 4 * width})});
  const int narrow = linear("down", active, 4 * width, width);
  const int out = make.AddNode("aten.add.Tensor", {Value(middle), Value(narrow)}, {whole});
  const int loss = make.AddNode("aten.mean.default", {Value(out)}, {Meta({})});
  for (Input& input : make.data.inputs) input.meta.dtype = DType::kFloat32;
  for (Parameter& parameter : make.data.parameters) parameter.dtype = DType::kFloat32;
  for (Node& node : make.data.nodes) {
    for (TensorMeta& meta : node.outputs) meta.dtype = DType::kFloat32;
  }
  Layer layer;
  layer.graph = std::make_unique<Graph>(make.Finish(loss));
  layer.stage = WholeGraph(*layer.graph);
  std::erase_if(layer.stage.nodes,
                [&](NodeId id) { return id.value() <= before || id.value() == loss; });
  layer.output = {NodeId(out), 0};
  return layer;
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "split_backward_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Checked(absl::StatusOr<T> result) {
  Check(result.status());
  return *std::move(result);
}

class Meter : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    bytes += size;
  }
  int64_t bytes = 0;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <typename Function>
void Time(std::vector<double>& times, Function&& function) {
  const absl::Time start = absl::Now();
  function();
  times.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
}

void Run(const Shape& shape) {
  at::set_num_threads(shape.threads);
  const Layer layer = MakeLayer(shape);
  const Graph& graph = *layer.graph;
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < graph.parameters().size(); ++i) ids.emplace_back(i);
  const ParameterStore store =
      Checked(ParameterStore::Load(graph, ids, WriteWeights(graph, "layer.safetensors"), at::kCPU));
  const auto build = [&](bool split) {
    return Checked(StageModule::Create(graph, layer.stage, {layer.output}, store,
                                       {.mini_batch = shape.samples, .split_backward = split}));
  };
  const auto whole = build(false), halves = build(true);
  const SampleRange range{0, shape.samples};
  const std::vector<int64_t> sizes = {shape.samples, shape.length, shape.width};
  const StageModule::Tensors tensors{{Random(sizes, 1, at::kFloat)}, {}};
  const std::vector<at::Tensor> gradients = {Random(sizes, 2, at::kFloat)};
  const auto forward = [&](StageModule& module) {
    Checked(module.Forward({0, range}, tensors, StageModule::Keep::kGraph));
  };
  std::vector<double> f, b, i, w;
  int64_t held = 0, between = 0;
  for (int round = 0; round < shape.rounds; ++round) {
    Time(f, [&] { forward(*whole); });
    Time(b, [&] { Checked(whole->Backward({0, range}, gradients)); });
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    forward(*halves);
    held = meter->bytes;
    Time(i, [&] { Checked(halves->BackwardInput({0, range}, gradients)); });
    between = meter->bytes;
    Time(w, [&] { Check(halves->BackwardWeight({0, range})); });
  }
  const double both = Median(i) + Median(w);
  std::printf("layer of width %ld, %ld heads, %ld x %ld tokens, %d thread(s), medians of %d\n",
              static_cast<long>(shape.width), static_cast<long>(shape.heads),
              static_cast<long>(shape.samples), static_cast<long>(shape.length), shape.threads,
              shape.rounds);
  std::printf("forward %.2f ms, backward B %.2f ms, halves I %.2f ms + W %.2f ms = %.2f ms\n",
              Median(f), Median(b), Median(i), Median(w), both);
  std::printf("(I + W) / B = %.3f\n", both / Median(b));
  std::printf("held: after forward %.2f MiB, between the halves %.2f MiB\n",
              static_cast<double>(held) / (1 << 20), static_cast<double>(between) / (1 << 20));
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) {
  stagewright::Shape shape;
  CLI::App app("Time of both halves of a backward pass against the whole");
  app.add_option("--width", shape.width)->check(CLI::PositiveNumber);
  app.add_option("--heads", shape.heads)->check(CLI::PositiveNumber);
  app.add_option("--length", shape.length)->check(CLI::PositiveNumber);
  app.add_option("--samples", shape.samples)->check(CLI::PositiveNumber);
  app.add_option("--rounds", shape.rounds)->check(CLI::PositiveNumber);
  app.add_option("--threads", shape.threads)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  stagewright::Run(shape);
  return 0;
}
