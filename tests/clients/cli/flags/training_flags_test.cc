#include "clients/cli/flags/training_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace stagewright::cli {
namespace {

// How a job is trained by a command line of these words.
absl::StatusOr<TrainingSpec> Parse(std::vector<std::string> words) {
  CLI::App app;
  TrainingFlags flags;
  AddTrainingFlags(app, flags);
  std::reverse(words.begin(), words.end());  // As CLI::App takes them.
  app.parse(std::move(words));
  return MakeTraining(flags);
}

TEST(TrainingFlags, AreAdamWithoutCheckpointsUnlessTold) {
  const TrainingSpec training = Parse({"--lr", "0.25"}).value();
  EXPECT_EQ(training.optimizer.kind, Optimizer::kAdam);
  EXPECT_EQ(training.optimizer.learning_rate, 0.25);
  EXPECT_FALSE(training.optimizer.decoupled_weight_decay);
  EXPECT_FALSE(training.checkpoints.has_value());
  EXPECT_THROW(Parse({}).IgnoreError(), CLI::RequiredError);
}

TEST(TrainingFlags, NameTheOptimizer) {
  EXPECT_TRUE(Parse({"--lr", "1", "--optimizer", "adamw"})->optimizer.decoupled_weight_decay);
  EXPECT_EQ(Parse({"--lr", "1", "--optimizer", "momentum"})->optimizer.kind,
            Optimizer::kSgdMomentum);
  EXPECT_THROW(Parse({"--lr", "1", "--optimizer", "sam"}).IgnoreError(), CLI::ValidationError);
}

TEST(TrainingFlags, ThatWouldDoNothingAreRefused) {
  const auto said = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--lr", "1"});
    return std::string(Parse(std::move(words)).status().message());
  };
  EXPECT_EQ(said({"--momentum", "0.5"}), "--momentum is of --optimizer momentum, which is adam");
  EXPECT_EQ(said({"--nesterov", "--optimizer", "sgd"}),
            "--nesterov is of --optimizer momentum, which is sgd");
  EXPECT_EQ(said({"--gamma", "0.5"}), "--gamma is of --schedule step, which is constant");
  EXPECT_EQ(said({"--end-factor", "0.5", "--schedule", "step"}),
            "--end-factor is of --schedule linear or cosine, which is step");
  EXPECT_EQ(said({"--gamma", "0.5", "--decay-every", "2", "--schedule", "step"}), "");
  EXPECT_EQ(said({"--momentum", "0.5", "--optimizer", "momentum", "--nesterov"}), "");
  EXPECT_EQ(said({"--decay-steps", "9", "--schedule", "cosine"}), "");
}

TEST(TrainingFlags, GroupsHaveADecayAndMayHaveAScale) {
  const TrainingSpec training =
      Parse({"--lr", "1", "--group", "*.bias=0", "--group", "a=b=0.5,2"}).value();
  ASSERT_EQ(training.optimizer.groups.size(), 2u);
  EXPECT_EQ(training.optimizer.groups[0].pattern, "*.bias");
  EXPECT_EQ(training.optimizer.groups[0].weight_decay, 0);
  EXPECT_EQ(training.optimizer.groups[1].pattern, "a=b");
  EXPECT_EQ(training.optimizer.groups[1].weight_decay, 0.5);
  EXPECT_EQ(training.optimizer.groups[1].learning_rate_scale, 2);
  for (const char* wrong : {"a", "=1", "a=", "a=x", "a=1,2,3"}) {
    const absl::Status status = Parse({"--lr", "1", "--group", wrong}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(wrong));
  }
}

TEST(TrainingFlags, EachFlagOfCheckpointsAsksForThem) {
  const auto checkpoints = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--lr", "1"});
    return Parse(std::move(words)).value().checkpoints.value();
  };
  EXPECT_EQ(checkpoints({"--checkpoint-every", "7"}).every_steps, 7);
  EXPECT_EQ(checkpoints({"--checkpoint-minutes", "0.5"}).every, 30'000'000'000);
  EXPECT_EQ(checkpoints({"--keep", "3"}).keep, 3);
  EXPECT_TRUE(checkpoints({"--checkpoint-or-fail"}).fail_job);
}

}  // namespace
}  // namespace stagewright::cli
