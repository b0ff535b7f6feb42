#include "clients/cli/flags/plan_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/support/checkout/source_path.h"

namespace stagewright::cli {
namespace {

const std::string kGraph = testing::SourcePath("examples/graphs/case-study.swg");

void ParseInto(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // As CLI::App takes them.
  app.parse(std::move(words));
}

// The problem of a command line of these words.
absl::StatusOr<v1::PlanningProblem> Parse(std::vector<std::string> words) {
  CLI::App app;
  ProblemFlags flags;
  AddProblemFlags(app, flags);
  ParseInto(app, std::move(words));
  std::vector<std::string> warnings;
  return MakeProblem(flags, warnings);
}

TEST(MakeProblem, SendsPresetsByNameAndOtherClustersWhole) {
  const v1::PlanningProblem problem =
      Parse({kGraph, "--cluster", "summit:8", "--mini-batch", "64", "--optimizer", "sgd"}).value();
  EXPECT_EQ(problem.cluster_preset(), "summit:8");
  EXPECT_FALSE(problem.has_cluster());
  EXPECT_EQ(problem.mini_batch(), 64);
  EXPECT_EQ(problem.optimizer(), v1::OPTIMIZER_SGD);
  EXPECT_GT(problem.graph().nodes_size(), 0);
  EXPECT_FALSE(Parse({kGraph, "--cluster", "no/such/file", "--mini-batch", "64"}).ok());
}

TEST(MakeProblem, NamesWhatIsMissing) {
  EXPECT_THROW(Parse({}).IgnoreError(), CLI::RequiredError);
  EXPECT_THROW(Parse({kGraph, "--mini-batch", "64"}).IgnoreError(), CLI::RequiredError);
  EXPECT_THROW(Parse({kGraph, "--cluster", "summit:8"}).IgnoreError(), CLI::RequiredError);
  EXPECT_THROW(Parse({kGraph, "--mini-batch", "0"}).IgnoreError(), CLI::ValidationError);
}

TEST(AddSearchFlags, FillTheOptions) {
  const auto options = std::make_shared<v1::PlanOptions>();
  CLI::App app;
  AddSearchFlags(app, options);
  ParseInto(app, {"--micro-batch",
                  "4",
                  "--stages",
                  "2",
                  "--max-stages",
                  "3",
                  "--max-k",
                  "5",
                  "--max-loops",
                  "6",
                  "--effort",
                  "7",
                  "--no-replicas",
                  "--per-stage-micro-batch",
                  "--recompute",
                  "never",
                  "--batch-statistics",
                  "micro",
                  "--bucket-bytes",
                  "1000000",
                  "--shard-optimizer",
                  "auto",
                  "--no-split-backward",
                  "--sequential",
                  "--asynchronous",
                  "--vertical-sync"});
  EXPECT_EQ(options->micro_batch(), 4);
  EXPECT_EQ(options->num_stages(), 2);
  EXPECT_EQ(options->max_stages(), 3);
  EXPECT_EQ(options->max_k(), 5);
  EXPECT_EQ(options->max_loops(), 6);
  EXPECT_EQ(options->effort(), 7);
  EXPECT_TRUE(options->forbid_replicas() && options->per_stage_micro_batch());
  EXPECT_EQ(options->recompute(), v1::RECOMPUTE_POLICY_NEVER);
  EXPECT_EQ(options->batch_statistics(), v1::BATCH_STATISTICS_MICRO);
  EXPECT_EQ(options->bucket_bytes(), 1'000'000);
  EXPECT_EQ(options->optimizer_sharding(), v1::OPTIMIZER_SHARDING_AUTO);
  EXPECT_TRUE(options->forbid_split_backward() && options->sequential());
  EXPECT_TRUE(options->asynchronous() && options->vertical_sync());
}

TEST(AddSearchFlags, TakeEveryWayToShareOutTheOptimizer) {
  const std::pair<const char*, v1::OptimizerSharding> ways[] = {
      {"none", v1::OPTIMIZER_SHARDING_NONE},
      {"states", v1::OPTIMIZER_SHARDING_STATES},
      {"gradients", v1::OPTIMIZER_SHARDING_GRADIENTS},
      {"auto", v1::OPTIMIZER_SHARDING_AUTO}};
  for (const auto& [name, sharding] : ways) {
    const auto options = std::make_shared<v1::PlanOptions>();
    CLI::App app;
    AddSearchFlags(app, options);
    ParseInto(app, {"--shard-optimizer", name});
    EXPECT_EQ(options->optimizer_sharding(), sharding) << name;
  }
}

}  // namespace
}  // namespace stagewright::cli
