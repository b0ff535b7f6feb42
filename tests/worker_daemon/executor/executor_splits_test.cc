// A model whose operators are cut in parallel parts trains as the model as it is, and their
// checkpoints are the same.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/rewrite/split_operators.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kMiniBatch = 8, kSamples = 24, kSteps = 6, kTaken = 3;
constexpr int64_t kTokens = 5, kWidth = 8, kHeads = 4, kWords = 24;
constexpr int64_t kHeadWidth = kWidth / kHeads;

TensorMeta Rows(int64_t columns, DType dtype = DType::kFloat64) {
  TensorMeta meta = Meta({}, dtype);
  meta.shape = {{kTokens, 0}};
  if (columns > 0) meta.shape.push_back({0, columns});
  meta.layout = SampleLayout{0, 1};
  return meta;
}

// Parts that language models are made of.
class ModelMaker {
 public:
  ModelMaker() {
    tokens_ = make.AddInput("tokens", {-1, kTokens}, DType::kInt64);
    target_ = make.AddInput("target", {-1, kTokens}, DType::kInt64);
    make.data.inputs[static_cast<size_t>(target_)].role = InputRole::kTarget;
  }

  static TensorMeta Values(int64_t width = kWidth) { return Meta({-1, kTokens, width}); }
  static TensorMeta Heads() { return Meta({-1, kHeads, kTokens, kHeadWidth}); }

  int Add(const std::string& target, std::vector<Argument> args, const TensorMeta& out) {
    return make.AddNode("aten." + target, std::move(args), {out});
  }
  int Named(const std::string& name, int node) {
    make.data.nodes[static_cast<size_t>(node)].name = name;
    return node;
  }
  int Linear(const std::string& name, int x, int64_t in, int64_t out, bool bias = true) {
    const int weight = make.AddParameter(name + ".weight", {out, in});
    const Argument added = bias ? Param(make.AddParameter(name + ".bias", {out})) : Nothing();
    return Named(name, Add("linear.default", {Value(x), Param(weight), added}, Values(out)));
  }
  int Embed(int table, std::vector<Argument> more = {}) {
    std::vector<Argument> args = {Param(table), In(tokens_)};
    args.insert(args.end(), more.begin(), more.end());
    const int embedded = Named("table", Add("embedding.default", std::move(args), Values()));
    return Add("dropout.default", {Value(embedded), Real(0.25), Bool(true)}, Values());
  }
  // The heads of a value of the whole width.
  int Apart(Argument x) {
    const int apart = Add(
        "view.default", {std::move(x), List({Batch(), Int(kTokens), Int(kHeads), Int(kHeadWidth)})},
        Meta({-1, kTokens, kHeads, kHeadWidth}));
    return Add("transpose.int", {Value(apart), Int(1), Int(2)}, Heads());
  }
  // Attention and its projection.
  int Attend(Argument q, Argument k, Argument v) {
    const int mixed =
        Add("scaled_dot_product_attention.default",
            {std::move(q), std::move(k), std::move(v), Nothing(), Real(0), Bool(true)}, Heads());
    const int back = Add("transpose.int", {Value(mixed), Int(1), Int(2)},
                         Meta({-1, kTokens, kHeads, kHeadWidth}));
    const int together =
        Add("reshape.default", {Value(back), List({Batch(), Int(kTokens), Int(kWidth)})}, Values());
    return Linear("o", together, kWidth, kWidth);
  }
  int Sum(int a, int b) { return Add("add.Tensor", {Value(a), Value(b)}, Values()); }
  // Cross-entropy; its sum ignores word 3.
  Graph Finish(int logits, int64_t reduction) {
    const int rows =
        Add("view.default", {Value(logits), List({Batch(kTokens), Int(kWords)})}, Rows(kWords));
    const int labels =
        Add("view.default", {In(target_), List({Batch(kTokens)})}, Rows(0, DType::kInt64));
    const int loss =
        Add("cross_entropy_loss.default",
            {Value(rows), Value(labels), Nothing(), Int(reduction), Int(reduction == 1 ? -100 : 3)},
            Meta({}));
    return make.Finish(loss, logits, reduction == 1 ? LossReduction::kMean : LossReduction::kSum);
  }

  GraphMaker make;

 private:
  int tokens_, target_;
};

// Embedding, dropout, attention with a residual, a layer of two products with a residual, a head
// over the words.
Graph LanguageModel(int64_t reduction) {
  ModelMaker model;
  const int x = model.Embed(model.make.AddParameter("table.weight", {kWords, kWidth}));
  // A bias of the keys changes nothing: its gradient is all rounding.
  const auto heads = [&](const std::string& name) {
    return Value(model.Apart(Value(model.Linear(name, x, kWidth, kWidth, name != "k"))));
  };
  const int y = model.Sum(x, model.Attend(heads("q"), heads("k"), heads("v")));
  const int wide = model.Linear("up", y, kWidth, 3 * kWidth);
  const int active = model.Add("gelu.default", {Value(wide)}, model.Values(3 * kWidth));
  const int z = model.Sum(y, model.Linear("down", active, 3 * kWidth, kWidth));
  return model.Finish(model.Linear("head", z, kWidth, kWords), reduction);
}

// How a joint projection is taken apart.
enum class Joint { kSplit, kUnbind, kSelect };

// The table is the head, too; queries, keys and values come from one projection, and a gate and
// what it gates from another.
Graph JointModel(int64_t reduction, Joint joint) {
  ModelMaker model;
  const int table = model.make.AddParameter("table.weight", {kWords, kWidth});
  const int x = model.Embed(table, {Int(5), Bool(false), Bool(false)});
  const int all = model.Linear("qkv", x, kWidth, 3 * kWidth, false);
  std::vector<Argument> heads;
  if (joint == Joint::kSplit) {
    const int parts = model.make.AddNode("aten.split.Tensor", {Value(all), Int(kWidth), Int(-1)},
                                         std::vector<TensorMeta>(3, model.Values()));
    for (int i = 0; i < 3; ++i) heads.push_back(Value(model.Apart(Value(parts, i))));
  } else {
    const int apart =
        model.Add("view.default",
                  {Value(all), List({Batch(), Int(kTokens), Int(3), Int(kHeads), Int(kHeadWidth)})},
                  Meta({-1, kTokens, 3, kHeads, kHeadWidth}));
    TensorMeta three = Meta({3, -1, kHeads, kTokens, kHeadWidth});
    three.layout = SampleLayout{1, 1};
    const int turned = model.Add(
        "permute.default", {Value(apart), List({Int(2), Int(0), Int(3), Int(1), Int(4)})}, three);
    const int parts = joint == Joint::kSelect
                          ? 0
                          : model.make.AddNode("aten.unbind.int", {Value(turned), Int(0)},
                                               std::vector<TensorMeta>(3, model.Heads()));
    for (int i = 0; i < 3; ++i) {
      heads.push_back(
          joint == Joint::kUnbind
              ? Value(parts, i)
              : Value(model.Add("select.int", {Value(turned), Int(0), Int(i - 3)}, model.Heads())));
    }
  }
  const int y = model.Sum(x, model.Attend(heads[0], heads[1], heads[2]));
  const int wide = model.Linear("gate", y, kWidth, 6 * kWidth);
  const int two = model.make.AddNode("aten.chunk.default", {Value(wide), Int(2), Int(2)},
                                     std::vector<TensorMeta>(2, model.Values(3 * kWidth)));
  const int gate = model.Add("silu.default", {Value(two, 0)}, model.Values(3 * kWidth));
  const int gated = model.Add("mul.Tensor", {Value(gate), Value(two, 1)}, model.Values(3 * kWidth));
  const int z = model.Sum(y, model.Linear("down", gated, 3 * kWidth, kWidth));
  const int logits = model.Named(
      "head", model.Add("linear.default", {Value(z), Param(table)}, model.Values(kWords)));
  return model.Finish(logits, reduction);
}

const std::vector<std::vector<OperatorSplit>>& Splits() {
  static const auto* const splits = new std::vector<std::vector<OperatorSplit>>{
      {{"up", 4}},                               // Joined before "down".
      {{"up", 4}, {"down", 4}},                  // Columns, then rows.
      {{"q", 2}, {"k", 2}, {"v", 2}, {"o", 2}},  // Heads.
      {{"q", 4}, {"k", 4}, {"v", 2}},            // Not all alike.
      {{"table", 2}},                            // The table by columns.
      {{"head", 3}},                             // The words.
      {{"table", 8}, {"q", 4}, {"k", 4}, {"v", 4}, {"o", 4}, {"up", 2}, {"down", 2}, {"head", 8}},
  };
  return *splits;
}

struct Saved {
  absl::Mutex mutex;
  std::vector<CheckpointFile> files;
};

class ExecutorSplitsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  ExecutorSplitsTest() { Use(LanguageModel(GetParam()), "head.weight"); }

  // Trains a model whose parameter `apart` is in a group of its own.
  void Use(Graph graph, const std::string& apart) {
    at::set_num_threads(1);
    spec_.graph = whole_ = std::make_shared<const Graph>(std::move(graph));
    const std::string stem = "splits_" + std::to_string(GetParam()) + "_" +
                             std::to_string(reinterpret_cast<uintptr_t>(this));
    spec_.weights_path = WriteWeights(*whole_, stem + "_weights.safetensors");
    spec_.data_path = TempPath(stem + "_data.safetensors");
    root_ = TempPath(stem + "_checkpoints");
    at::manual_seed(3);
    WriteTensors(spec_.data_path, {{"tokens", at::randint(0, kWords, {kSamples, kTokens})},
                                   {"target", at::randint(0, kWords, {kSamples, kTokens})}});
    OptimizerSpec& optimizer = spec_.training.optimizer;
    optimizer.kind = Optimizer::kAdam;
    optimizer.learning_rate = 0.01;
    optimizer.decoupled_weight_decay = true;
    optimizer.weight_decay = 0.1;
    optimizer.groups = {{"*.bias", 0, 2.0}, {apart, 0.3, 0.5}};
    spec_.steps = kSteps;
    spec_.seed = 11;
  }

  void Cut(const std::vector<OperatorSplit>& splits) {
    auto graph = SplitOperators(*whole_, splits);
    ASSERT_TRUE(graph.ok()) << graph.status();
    spec_.graph = std::make_shared<const Graph>(*std::move(graph));
  }

  absl::StatusOr<TrainingResult> Train(StrategyShape shape, uint64_t seed, Saved* saved = nullptr) {
    shape.mini_batch = kMiniBatch;
    std::mt19937_64 random(seed);
    ASSIGN_OR_RETURN(const Programs programs,
                     LowerBoth(*spec_.graph, ForceStrategy(*spec_.graph, shape, random)));
    DeviceJob spec = spec_;
    spec.program = programs.training;
    if (saved != nullptr) {
      spec.checkpoint_root = root_;
      spec.checkpoint_due = [](int64_t steps) { return steps == kTaken; };
      spec.on_checkpoint = [saved](CheckpointReport report) {
        absl::MutexLock lock(&saved->mutex);
        EXPECT_TRUE(report.status.ok()) << report.status;
        saved->files.insert(saved->files.end(), report.files.begin(), report.files.end());
      };
    }
    return TrainLocally(spec);
  }

  void ExpectTrainsAlike(const std::vector<std::vector<OperatorSplit>>& all) {
    const auto whole = Train({.stages = 1, .micro_batches = 1}, 1);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const std::vector<StrategyShape> plans = {
        {.stages = 1, .micro_batches = 1},
        {.stages = 4, .micro_batches = 4},
        {.stages = 6, .most_replicas = 2, .micro_batches = 2}};
    for (const auto& splits : all) {
      SCOPED_TRACE(OperatorSplitsText(splits));
      Cut(splits);
      for (size_t plan = 0; plan < plans.size(); ++plan) {
        SCOPED_TRACE(plan);
        const auto cut = Train(plans[plan], 10 + plan);
        ASSERT_TRUE(cut.ok()) << cut.status();
        ExpectSame(*cut, *whole);
      }
    }
    spec_.graph = whole_;
  }

  std::shared_ptr<const Checkpoint> Complete(const Saved& saved) {
    Manifest manifest;
    manifest.step = kTaken;
    manifest.samples = kTaken * kMiniBatch;
    manifest.seed = spec_.seed;
    manifest.optimizer = StateName(spec_.training.optimizer.kind);
    manifest.files = saved.files;
    const std::string directory = CheckpointDirectory(root_, kTaken);
    const absl::Status status = CompleteCheckpoint(directory, *spec_.graph, manifest);
    EXPECT_TRUE(status.ok()) << status;
    auto checkpoint = Checkpoint::Open(directory);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return std::make_shared<const Checkpoint>(*std::move(checkpoint));
  }

  static void ExpectSame(const TrainingResult& found, const TrainingResult& expected,
                         size_t from = 0) {
    ASSERT_EQ(found.losses.size() + from, expected.losses.size());
    for (size_t i = 0; i < found.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], expected.losses[i + from], 1e-9 * expected.losses[i + from]);
    for (const auto& [name, tensor] : found.parameters)
      EXPECT_TRUE(expected.parameters.contains(name)) << name;
    for (const auto& [name, tensor] : expected.parameters) {
      ASSERT_TRUE(found.parameters.contains(name)) << name;
      EXPECT_LT(RelativeError(found.parameters.at(name), tensor), 1e-9) << name;
    }
  }

  std::shared_ptr<const Graph> whole_;
  DeviceJob spec_;
  std::string root_;
};

INSTANTIATE_TEST_SUITE_P(MeanAndSum, ExecutorSplitsTest, ::testing::Values(1, 2));

TEST_P(ExecutorSplitsTest, TrainsAsTheModelAsItIs) { ExpectTrainsAlike(Splits()); }

TEST_P(ExecutorSplitsTest, JointProjectionsGoOnInParts) {
  for (const Joint joint : {Joint::kSplit, Joint::kUnbind, Joint::kSelect}) {
    Use(JointModel(GetParam(), joint), "table.weight");
    Cut({{"qkv", 2}, {"o", 2}, {"gate", 4}, {"down", 4}});
    for (const Node& node : spec_.graph->nodes())
      EXPECT_NE(node.target, "aten.cat.default") << node.name;
  }
}

TEST_P(ExecutorSplitsTest, TiedWeightsAndJointProjectionsTrainAsTheModelAsItIs) {
  for (const Joint joint : {Joint::kSplit, Joint::kUnbind, Joint::kSelect}) {
    SCOPED_TRACE(static_cast<int>(joint));
    Use(JointModel(GetParam(), joint), "table.weight");
    ExpectTrainsAlike({{{"head", 3}},                             // The table, too.
                       {{"table", 4}},                            // The head, too.
                       {{"qkv", 2}, {"o", 2}},                    // Heads.
                       {{"gate", 2}, {"down", 2}},                // Columns, then rows.
                       {{"qkv", 4}, {"gate", 2}, {"head", 8}}});  // Joined before "o" and "down".
  }
}

TEST_P(ExecutorSplitsTest, CheckpointsFitTheModelAsItIsAndTheReverse) {
  const auto all = Train({.stages = 1, .micro_batches = 1}, 1);
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::vector<OperatorSplit>> splits = {{}, Splits().back(), {{"head", 2}, {"up", 3}}};
  for (const auto& from : splits) {
    spec_.resume = nullptr;
    std::filesystem::remove_all(root_);
    Cut(from);
    Saved saved;
    ASSERT_TRUE(Train({.stages = 4, .most_replicas = 2, .micro_batches = 2}, 5, &saved).ok());
    spec_.resume = Complete(saved);
    for (const auto& to : splits) {
      SCOPED_TRACE(OperatorSplitsText(from) + " to " + OperatorSplitsText(to));
      Cut(to);
      const auto rest = Train({.stages = 3, .micro_batches = 4}, 7);
      ASSERT_TRUE(rest.ok()) << rest.status();
      ExpectSame(*rest, *all, kTaken);
    }
  }
}

TEST_P(ExecutorSplitsTest, AWordThatIsNotThereIsAnErrorAsItIsWithoutParts) {
  for (const bool joint : {false, true}) {
    if (joint) Use(JointModel(GetParam(), Joint::kSplit), "table.weight");
    for (const int64_t word : {kWords, int64_t{-7}}) {
      at::Tensor wrong = at::zeros({kSamples, kTokens}, at::kLong);
      wrong[1][2] = word;
      const at::Tensor right = at::zeros({kSamples, kTokens}, at::kLong);
      for (const bool in_target : {false, true}) {
        WriteTensors(spec_.data_path, {{"tokens", in_target ? right : wrong},
                                       {"target", in_target ? wrong : right}});
        spec_.graph = whole_;
        EXPECT_FALSE(Train({.stages = 1, .micro_batches = 1}, 1).ok());
        Cut({{"head", 3}});
        EXPECT_FALSE(Train({.stages = 1, .micro_batches = 1}, 1).ok());
      }
    }
  }
}

}  // namespace
}  // namespace stagewright::testing
