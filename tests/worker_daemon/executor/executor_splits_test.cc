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

TensorMeta Rows(int64_t columns, DType dtype = DType::kFloat64) {
  TensorMeta meta = Meta({}, dtype);
  meta.shape = {{kTokens, 0}};
  if (columns > 0) meta.shape.push_back({0, columns});
  meta.layout = SampleLayout{0, 1};
  return meta;
}

// A language model: embedding, dropout, attention with a residual, a layer of two products with a
// residual, a head over the words, cross-entropy that ignores word 3.
Graph LanguageModel(int64_t reduction) {
  GraphMaker make;
  const auto values = Meta({-1, kTokens, kWidth});
  const int tokens = make.AddInput("tokens", {-1, kTokens}, DType::kInt64);
  const int target = make.AddInput("target", {-1, kTokens}, DType::kInt64);
  make.data.inputs[static_cast<size_t>(target)].role = InputRole::kTarget;
  const auto linear = [&](const std::string& name, Argument x, int64_t in, int64_t out) {
    const int weight = make.AddParameter(name + ".weight", {out, in});
    // A bias of the keys changes nothing: its gradient is all rounding.
    const Argument bias = name == "k" ? Nothing() : Param(make.AddParameter(name + ".bias", {out}));
    const int node =
        make.AddNode("aten.linear.default", {x, Param(weight), bias}, {Meta({-1, kTokens, out})});
    make.data.nodes[static_cast<size_t>(node)].name = name;
    return node;
  };
  const auto heads = [&](const std::string& name, int x) {
    const int all = linear(name, Value(x), kWidth, kWidth);
    const int apart =
        make.AddNode("aten.view.default",
                     {Value(all), List({Batch(), Int(kTokens), Int(kHeads), Int(kWidth / kHeads)})},
                     {Meta({-1, kTokens, kHeads, kWidth / kHeads})});
    return make.AddNode("aten.transpose.int", {Value(apart), Int(1), Int(2)},
                        {Meta({-1, kHeads, kTokens, kWidth / kHeads})});
  };
  const int table = make.AddParameter("table.weight", {kWords, kWidth});
  const int embedded = make.AddNode("aten.embedding.default", {Param(table), In(tokens)}, {values});
  make.data.nodes[static_cast<size_t>(embedded)].name = "table";
  const int x =
      make.AddNode("aten.dropout.default", {Value(embedded), Real(0.25), Bool(true)}, {values});
  const int mixed = make.AddNode("aten.scaled_dot_product_attention.default",
                                 {Value(heads("q", x)), Value(heads("k", x)), Value(heads("v", x)),
                                  Nothing(), Real(0), Bool(true)},
                                 {Meta({-1, kHeads, kTokens, kWidth / kHeads})});
  const int back = make.AddNode("aten.transpose.int", {Value(mixed), Int(1), Int(2)},
                                {Meta({-1, kTokens, kHeads, kWidth / kHeads})});
  const int together = make.AddNode(
      "aten.reshape.default", {Value(back), List({Batch(), Int(kTokens), Int(kWidth)})}, {values});
  const int attended = linear("o", Value(together), kWidth, kWidth);
  const int y = make.AddNode("aten.add.Tensor", {Value(x), Value(attended)}, {values});
  const int wide = linear("up", Value(y), kWidth, 3 * kWidth);
  const int active =
      make.AddNode("aten.gelu.default", {Value(wide)}, {Meta({-1, kTokens, 3 * kWidth})});
  const int narrow = linear("down", Value(active), 3 * kWidth, kWidth);
  const int z = make.AddNode("aten.add.Tensor", {Value(y), Value(narrow)}, {values});
  const int logits = linear("head", Value(z), kWidth, kWords);
  const int rows = make.AddNode(
      "aten.view.default", {Value(logits), List({Batch(kTokens), Int(kWords)})}, {Rows(kWords)});
  const int labels = make.AddNode("aten.view.default", {In(target), List({Batch(kTokens)})},
                                  {Rows(0, DType::kInt64)});
  const int loss = make.AddNode(
      "aten.cross_entropy_loss.default",
      {Value(rows), Value(labels), Nothing(), Int(reduction), Int(reduction == 1 ? -100 : 3)},
      {Meta({})});
  return make.Finish(loss, logits, reduction == 1 ? LossReduction::kMean : LossReduction::kSum);
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
  ExecutorSplitsTest() {
    at::set_num_threads(1);
    spec_.graph = whole_ = std::make_shared<const Graph>(LanguageModel(GetParam()));
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
    optimizer.groups = {{"*.bias", 0, 2.0}, {"head.weight", 0.3, 0.5}};
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

TEST_P(ExecutorSplitsTest, TrainsAsTheModelAsItIs) {
  const auto whole = Train({.stages = 1, .micro_batches = 1}, 1);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::vector<StrategyShape> plans = {{.stages = 1, .micro_batches = 1},
                                            {.stages = 4, .micro_batches = 4},
                                            {.stages = 6, .most_replicas = 2, .micro_batches = 2}};
  for (const auto& splits : Splits()) {
    SCOPED_TRACE(OperatorSplitsText(splits));
    Cut(splits);
    for (size_t plan = 0; plan < plans.size(); ++plan) {
      SCOPED_TRACE(plan);
      const auto cut = Train(plans[plan], 10 + plan);
      ASSERT_TRUE(cut.ok()) << cut.status();
      ExpectSame(*cut, *whole);
    }
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
  for (const int64_t word : {kWords, int64_t{-7}}) {
    at::Tensor target = at::zeros({kSamples, kTokens}, at::kLong);
    target[1][2] = word;
    WriteTensors(spec_.data_path,
                 {{"tokens", at::zeros({kSamples, kTokens}, at::kLong)}, {"target", target}});
    spec_.graph = whole_;
    EXPECT_FALSE(Train({.stages = 1, .micro_batches = 1}, 1).ok());
    Cut({{"head", 3}});
    EXPECT_FALSE(Train({.stages = 1, .micro_batches = 1}, 1).ok());
  }
}

}  // namespace
}  // namespace stagewright::testing
