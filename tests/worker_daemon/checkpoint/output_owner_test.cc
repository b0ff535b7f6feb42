#include "worker_daemon/checkpoint/output_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/data/safetensors_files.h"
#include "worker_daemon/checkpoint/checkpoint.h"

namespace stagewright::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OutputOwnerTest : public ::testing::Test {
 protected:
  // A checkpoint, as far as anybody looks at it here.
  void WriteCheckpoint(int64_t step, const std::string& run, int64_t generation = 0) const {
    Manifest manifest;
    manifest.step = step;
    manifest.run = run;
    manifest.generation = generation;
    std::filesystem::create_directories(Directory(step));
    ASSERT_EQ(WriteManifest(Directory(step), manifest), absl::OkStatus());
  }
  std::string Directory(int64_t step) const {
    return CheckpointDirectory(CheckpointRoot(output_), step);
  }
  std::string Refusal(const std::string& run) const {
    const absl::Status status = MayTakeOutput(output_, run);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  void WriteShard(const std::string& of, const std::string& name) const {
    std::filesystem::create_directories(output_ + "/shards-" + of);
    WriteBytes(output_ + "/shards-" + of + "/" + name, "trained");
  }
  // Whose there are.
  std::vector<std::string> ShardDirectories() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(output_)) {
      std::string name = entry.path().filename().string();
      if (name.rfind("shards-", 0) == 0) found.push_back(name.substr(7));
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  const TempDirectory directory_;
  const std::string output_ = directory_.File("out");
  const OutputOwner first_ = {"jobs-7-a1", "jobs/7", "digits", 1};
  const OutputOwner second_ = {"jobs-7-b2", "jobs/7", "digits", 1};
};

TEST_F(OutputOwnerTest, IsReadAsItWasWritten) {
  ASSERT_TRUE(ReadOwner(output_).ok());
  EXPECT_FALSE(ReadOwner(output_)->has_value());
  ASSERT_EQ(TakeOutput(output_, first_, OthersResults::kRefused), absl::OkStatus());
  const auto owner = ReadOwner(output_);
  ASSERT_TRUE(owner.ok() && owner->has_value()) << owner.status();
  EXPECT_EQ((*owner)->run, "jobs-7-a1");
  EXPECT_EQ((*owner)->job, "jobs/7");
  EXPECT_EQ((*owner)->name, "digits");
  EXPECT_EQ((*owner)->generation, 1);
}

TEST_F(OutputOwnerTest, WhatHoldsNoResultsMayBeTaken) {
  EXPECT_EQ(MayTakeOutput(output_, first_.run), absl::OkStatus());
  ASSERT_EQ(TakeOutput(output_, first_, OthersResults::kRefused), absl::OkStatus());
  std::filesystem::create_directories(output_ + "/shards-jobs-7-a1-1");
  WriteBytes(output_ + "/notes.txt", "of the user");
  EXPECT_EQ(MayTakeOutput(output_, second_.run), absl::OkStatus());
}

TEST_F(OutputOwnerTest, AnotherJobsResultsAreRefusedThoughItsNameIsTheSame) {
  ASSERT_EQ(TakeOutput(output_, first_, OthersResults::kRefused), absl::OkStatus());
  WriteCheckpoint(10, first_.run);
  EXPECT_EQ(MayTakeOutput(output_, first_.run), absl::OkStatus());
  EXPECT_THAT(Refusal(second_.run),
              AllOf(HasSubstr(output_), HasSubstr("job \"digits\" (jobs/7, run jobs-7-a1)"),
                    HasSubstr("--overwrite")));
}

TEST_F(OutputOwnerTest, ModelsAndShardsAreResultsToo) {
  std::filesystem::create_directories(output_ + "/shards-3");
  EXPECT_EQ(MayTakeOutput(output_, first_.run), absl::OkStatus());
  WriteBytes(output_ + "/shards-3/shard-00000.safetensors", "trained");
  EXPECT_THAT(Refusal(first_.run), HasSubstr("an earlier job"));
  std::filesystem::remove_all(output_ + "/shards-3");
  WriteBytes(output_ + "/model.safetensors", "trained");
  EXPECT_THAT(Refusal(first_.run), HasSubstr("an earlier job"));
}

TEST_F(OutputOwnerTest, ADamagedFileDoesNotOpenTheDoor) {
  WriteCheckpoint(10, first_.run);
  WriteBytes(output_ + "/" + kOwnerName, "{");
  EXPECT_FALSE(ReadOwner(output_).ok());
  EXPECT_THAT(Refusal(first_.run), HasSubstr("an earlier job"));
  ASSERT_EQ(TakeOutput(output_, first_, OthersResults::kCleared), absl::OkStatus());
  EXPECT_EQ(CheckOwned(output_, first_.run, 1), absl::OkStatus());
}

TEST_F(OutputOwnerTest, AFileThatIsTooLongIsNotReadWhole) {
  WriteCheckpoint(10, first_.run);
  WriteBytes(output_ + "/" + kOwnerName, "{");
  std::filesystem::resize_file(output_ + "/" + kOwnerName, uintmax_t{1} << 40);
  EXPECT_EQ(ReadOwner(output_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Refusal(first_.run), HasSubstr("an earlier job"));
}

TEST_F(OutputOwnerTest, AllWorkersOfAJobMayTakeItAtOnce) {
  std::vector<std::thread> workers;
  for (int i = 0; i < 8; ++i) {
    workers.emplace_back([this] {
      EXPECT_EQ(TakeOutput(output_, first_, OthersResults::kCleared), absl::OkStatus());
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(CheckOwned(output_, first_.run, 1), absl::OkStatus());
}

TEST_F(OutputOwnerTest, WhoClearsSlowlyLeavesWhatTheJobHasWrittenSince) {
  for (const int64_t step : {5, 10, 15}) WriteCheckpoint(step, first_.run);
  int asked = 0;
  const auto others = [&] {
    if (++asked == 2) WriteCheckpoint(10, second_.run);
    return asked == 3;
  };
  EXPECT_THAT(ClearCheckpoints(CheckpointRoot(output_), second_.run, others), ::testing::IsEmpty());
  int found = 0;
  for (const int64_t step : {5, 10, 15}) found += std::filesystem::exists(Directory(step)) ? 1 : 0;
  EXPECT_EQ(found, 2) << "one was cleared, one is the job's, one was not come to";
  EXPECT_TRUE(std::filesystem::exists(Directory(10)));
}

TEST_F(OutputOwnerTest, OverwritingRemovesCheckpointsAndLeavesTheModelAndOthersFiles) {
  ASSERT_EQ(TakeOutput(output_, first_, OthersResults::kRefused), absl::OkStatus());
  WriteCheckpoint(10, first_.run);
  WriteBytes(Directory(10) + "/notes.txt", "of the user");
  WriteBytes(output_ + "/model.safetensors", "trained");
  ASSERT_EQ(TakeOutput(output_, second_, OthersResults::kCleared), absl::OkStatus());
  EXPECT_FALSE(HasCheckpoints(output_));
  EXPECT_TRUE(std::filesystem::exists(Directory(10) + "/notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(output_ + "/model.safetensors"));
  // The other workers of the job come later, perhaps after its first checkpoint.
  WriteCheckpoint(5, second_.run);
  ASSERT_EQ(TakeOutput(output_, second_, OthersResults::kCleared), absl::OkStatus());
  EXPECT_TRUE(HasCheckpoints(output_));
}

TEST_F(OutputOwnerTest, WhoLostItIsToldToWhom) {
  EXPECT_THAT(std::string(CheckOwned(output_, first_.run, 1).message()), HasSubstr("has gone"));
  ASSERT_EQ(TakeOutput(output_, first_, OthersResults::kRefused), absl::OkStatus());
  EXPECT_EQ(CheckOwned(output_, first_.run, 1), absl::OkStatus());
  ASSERT_EQ(TakeOutput(output_, second_, OthersResults::kCleared), absl::OkStatus());
  const absl::Status lost = CheckOwned(output_, first_.run, 1);
  EXPECT_EQ(lost.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr(output_), HasSubstr("run jobs-7-b2) has taken it")));
}

TEST_F(OutputOwnerTest, WhatAnotherJobHasLeftIsRefusedOrKept) {
  ASSERT_EQ(TakeOutput(output_, first_, OthersResults::kRefused), absl::OkStatus());
  WriteCheckpoint(10, first_.run);
  const absl::Status refused = TakeOutput(output_, second_, OthersResults::kRefused);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), Refusal(second_.run));
  EXPECT_EQ(CheckOwned(output_, first_.run, 1), absl::OkStatus());
  ASSERT_EQ(TakeOutput(output_, second_, OthersResults::kKept), absl::OkStatus());
  EXPECT_TRUE(HasCheckpoints(output_));
}

TEST_F(OutputOwnerTest, BelongsToTheGenerationThatWasPreparedLast) {
  // As an older version writes it.
  std::filesystem::create_directories(output_);
  WriteBytes(
      output_ + "/" + kOwnerName,
      R"({"format": "stagewright-output", "run": "jobs-7-a1", "job": "jobs/7", "name": ""})");
  EXPECT_EQ(CheckOwned(output_, first_.run, 1), absl::OkStatus());
  OutputOwner owner = first_;
  for (const int64_t generation : {2, 4, 3}) {
    owner.generation = generation;
    ASSERT_EQ(TakeOutput(output_, owner, OthersResults::kCleared), absl::OkStatus());
    EXPECT_EQ(CheckOwned(output_, owner.run, generation), absl::OkStatus());
    EXPECT_THAT(std::string(CheckOwned(output_, owner.run, generation - 1).message()),
                HasSubstr(absl::StrCat("is generation ", generation, "'s of this job")));
  }
}

TEST_F(OutputOwnerTest, WhoPreparedLastWritesOverCheckpointsOfHigherGenerations) {
  const auto write = [&](int64_t generation) {
    return WriteDeviceFiles(Directory(10), DeviceId(0), {}, {}, {}, {first_.run, generation})
        .status();
  };
  OutputOwner owner = first_;
  owner.generation = 4;
  ASSERT_EQ(TakeOutput(output_, owner, OthersResults::kCleared), absl::OkStatus());
  WriteCheckpoint(10, owner.run, owner.generation);
  EXPECT_THAT(std::string(write(3).message()), HasSubstr("a checkpoint of generation 4"));
  // A planner whose state was restored from a backup counts from there.
  owner.generation = 3;
  ASSERT_EQ(TakeOutput(output_, owner, OthersResults::kCleared), absl::OkStatus());
  EXPECT_EQ(write(3), absl::OkStatus());
}

TEST_F(OutputOwnerTest, ShardsThatNobodyMergesAnyMoreGo) {
  OutputOwner owner = first_;
  owner.generation = 3;
  ASSERT_EQ(TakeOutput(output_, owner, OthersResults::kRefused), absl::OkStatus());
  for (const char* shards : {"jobs-7-a1-1", "jobs-7-a1-2", "jobs-7-a1-3", "jobs-7-a1-4",
                             "jobs-7-a1-1-2", "jobs-7-b2-1", "3"})
    WriteShard(shards, "shard-00000.safetensors");
  WriteShard("jobs-7-a1-1", "shard-00001.safetensors.12345678.tmp");
  WriteShard("jobs-7-a1-2", "notes.txt");
  std::filesystem::create_directories(output_ + "/shards-jobs-7-a1-0");
  const std::string others = directory_.File("others");
  std::filesystem::create_directories(others);
  WriteBytes(others + "/shard-00000.safetensors", "of another job");
  std::filesystem::create_directory_symlink(others, output_ + "/shards-jobs-7-c3-1");
  WriteBytes(output_ + "/shards-of-tests", "a file");
  // Those of its own run that are of before it, and its files only.
  EXPECT_THAT(DropShards(output_, first_.run, 3, /*others=*/false), ::testing::IsEmpty());
  EXPECT_THAT(ShardDirectories(),
              ElementsAre("3", "jobs-7-a1-1-2", "jobs-7-a1-2", "jobs-7-a1-3", "jobs-7-a1-4",
                          "jobs-7-b2-1", "jobs-7-c3-1", "of-tests"));
  EXPECT_FALSE(std::filesystem::exists(output_ + "/shards-jobs-7-a1-2/shard-00000.safetensors"));
  // And those of other runs, but for what the job begins with.
  EXPECT_THAT(DropShards(output_, first_.run, 3, /*others=*/true,
                         output_ + "/./shards-3/shard-00000.safetensors"),
              ::testing::IsEmpty());
  EXPECT_THAT(ShardDirectories(), ElementsAre("3", "jobs-7-a1-2", "jobs-7-a1-3", "jobs-7-a1-4",
                                              "jobs-7-c3-1", "of-tests"));
  EXPECT_TRUE(std::filesystem::exists(others + "/shard-00000.safetensors"));
}

TEST_F(OutputOwnerTest, WhoIsNotTheOwnerLeavesAllShards) {
  OutputOwner owner = first_;
  owner.generation = 3;
  WriteShard("jobs-7-a1-1", "shard-00000.safetensors");
  EXPECT_THAT(DropShards(output_, first_.run, 3, /*others=*/true), ::testing::IsEmpty());
  ASSERT_EQ(TakeOutput(output_, owner, OthersResults::kKept), absl::OkStatus());
  for (const int64_t generation : {2, 4})
    EXPECT_THAT(DropShards(output_, first_.run, generation, /*others=*/true), ::testing::IsEmpty());
  EXPECT_THAT(DropShards(output_, second_.run, 3, /*others=*/true), ::testing::IsEmpty());
  EXPECT_THAT(ShardDirectories(), ElementsAre("jobs-7-a1-1"));
}

TEST_F(OutputOwnerTest, APlaceThatCannotBeMadeIsNamed) {
  WriteBytes(directory_.File("file"), "x");
  const absl::Status status =
      TakeOutput(directory_.File("file/out"), first_, OthersResults::kRefused);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_.File("file/out")));
}

TEST(PathPart, LeadsNowhereElse) {
  EXPECT_EQ(PathPart("jobs-7-18a3f"), "jobs-7-18a3f");
  EXPECT_EQ(PathPart("jobs/7"), "jobs-7");
  EXPECT_EQ(PathPart("../a b"), "---a-b");
}

}  // namespace
}  // namespace stagewright::testing
