#include "worker_daemon/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/common/data/safetensors_files.h"
#include "tests/worker_daemon/checkpoint/tied_graph.h"

namespace {

// What the thread has synced, by its path then.
thread_local std::vector<std::string> synced;

}  // namespace

// In the place of the C library's, for the whole program.
extern "C" int fsync(int file) {
  std::array<char, 4096> path;
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = readlink(link.c_str(), path.data(), path.size());
  if (size > 0) synced.emplace_back(path.data(), static_cast<size_t>(size));
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class CheckpointTest : public ::testing::Test {
 protected:
  std::string Directory(int64_t step) const { return CheckpointDirectory(root_, step); }

  // Two devices; values tell the step.
  absl::StatusOr<std::vector<CheckpointFile>> WriteShares(int64_t step) const {
    const std::vector<float> embedding = {static_cast<float>(step), 2}, bias = {3};
    const std::vector<float> average = {4, 5};
    ASSIGN_OR_RETURN(
        auto files,
        WriteDeviceFiles(Directory(step), DeviceId(0),
                         {View("embedding", DType::kFloat32, {2}, embedding)},
                         {View("embedding.exp_avg", DType::kFloat32, {2}, average),
                          View("embedding.inner.exp_avg", DType::kFloat32, {2}, average)},
                         evaluations_));
    ASSIGN_OR_RETURN(auto others, WriteDeviceFiles(Directory(step), DeviceId(3),
                                                   {View("bias", DType::kFloat32, {1}, bias)}, {},
                                                   evaluations_));
    files.insert(files.end(), others.begin(), others.end());
    return files;
  }
  void Write(int64_t step) const {
    auto files = WriteShares(step);
    ASSERT_TRUE(files.ok()) << files.status();
    Manifest manifest;
    manifest.step = step;
    manifest.files = *files;
    manifest.run = run_;
    const absl::Status status = CompleteCheckpoint(Directory(step), graph_, manifest);
    ASSERT_TRUE(status.ok()) << status;
  }
  int64_t Newest() {
    skipped_.clear();
    const auto found = Checkpoint::Find(output_, &skipped_);
    return found.ok() ? found->manifest().step : -1;
  }

  const Graph graph_ = Tied();
  const TempDirectory directory_;
  const std::string output_ = directory_.File("out");
  const std::string root_ = CheckpointRoot(output_);
  std::vector<std::string> skipped_;
  EvaluationHistory evaluations_;
  std::string run_;
};

TEST_F(CheckpointTest, TensorsAreFoundByName) {
  Write(100);
  EXPECT_EQ(Directory(100), root_ + "/step-0000000100");
  const auto checkpoint = Checkpoint::Open(Directory(100));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(Values<float>(*checkpoint->Weight("embedding")), ElementsAre(100, 2));
  EXPECT_THAT(Values<float>(*checkpoint->Weight("bias")), ElementsAre(3));
  EXPECT_EQ(checkpoint->Weight("nobody"), nullptr);
  const auto state = checkpoint->OptimizerState("embedding");
  ASSERT_EQ(state.size(), 1u);
  EXPECT_THAT(Values<float>(state.at("exp_avg")), ElementsAre(4, 5));
  EXPECT_EQ(checkpoint->OptimizerState("embedding.inner").size(), 1u);
  EXPECT_THAT(checkpoint->OptimizerState("bias"), IsEmpty());
  EXPECT_EQ(checkpoint->manifest().aliases.at("output.weight"), "embedding");
  EXPECT_EQ(checkpoint->manifest().weight_map.at("bias"), "model-00003.safetensors");
}

TEST_F(CheckpointTest, TheNewestWholeOneIsFoundAndOthersAreSkippedByName) {
  EXPECT_EQ(Newest(), -1);
  EXPECT_FALSE(HasCheckpoints(output_));
  Write(10);
  Write(20);
  Write(30);
  EXPECT_TRUE(HasCheckpoints(output_));
  EXPECT_EQ(Newest(), 30);
  EXPECT_THAT(skipped_, IsEmpty());

  // One bit.
  const std::string model = Directory(30) + "/model-00000.safetensors";
  std::string bytes = ReadBytes(model);
  bytes.back() ^= 1;
  WriteBytes(model, bytes);
  EXPECT_EQ(Newest(), 20);
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr(model + ": its checksum is")));

  // Cut short.
  const std::string other = Directory(20) + "/model-00003.safetensors";
  std::filesystem::resize_file(other, std::filesystem::file_size(other) - 1);
  EXPECT_EQ(Newest(), 10);
  ASSERT_EQ(skipped_.size(), 2u);
  EXPECT_THAT(skipped_[1], HasSubstr(other + ": it has"));

  // One that is asked for is not skipped.
  EXPECT_THAT(std::string(Checkpoint::Find(Directory(20), &skipped_).status().message()),
              HasSubstr(other));
  EXPECT_TRUE(Checkpoint::Find(Directory(10), &skipped_).ok());
  EXPECT_TRUE(Checkpoint::Find(root_, &skipped_).ok());

  std::filesystem::remove(Directory(10) + "/optimizer-00000.safetensors");
  const absl::Status none = Checkpoint::Find(output_, &skipped_).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("optimizer-00000.safetensors"));
}

TEST_F(CheckpointTest, EvaluationsComeFromTheFiles) {
  for (const EvaluationHistory& history :
       {EvaluationHistory(), EvaluationHistory{0.1 + 0.2, 3},
        EvaluationHistory{std::numeric_limits<double>::infinity(), 2}}) {
    evaluations_ = history;
    Write(10);
    const auto checkpoint = Checkpoint::Open(Directory(10));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->manifest().evaluations, history);
  }
}

TEST_F(CheckpointTest, WithoutAManifestItIsNoCheckpoint) {
  Write(10);
  ASSERT_TRUE(WriteShares(20).ok());
  EXPECT_EQ(Newest(), 10);
  // Writing over an old one takes its promise back first.
  Write(30);
  ASSERT_TRUE(WriteShares(30).ok());
  EXPECT_EQ(Newest(), 10);
}

TEST_F(CheckpointTest, WhereNobodyCanLookThereIsNotNone) {
  std::filesystem::create_directories(output_);
  EXPECT_TRUE(absl::IsNotFound(Checkpoint::Find(output_, &skipped_).status()));
  std::filesystem::create_symlink(root_, root_);  // A loop, which is no directory that is missing.
  const absl::Status status = Checkpoint::Find(output_, &skipped_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(output_ + ": cannot look for checkpoints"));
}

TEST(ResumesOwn, WhateverTheSpelling) {
  const testing::TempDirectory directory;
  const std::string output = directory.File("out");
  std::filesystem::create_directories(output + "/checkpoints/step-0000000005");
  std::filesystem::create_directory_symlink(output, directory.File("link"));
  for (const std::string& from :
       {output, output + "/", output + "/./checkpoints/", output + "/checkpoints/step-0000000005/",
        output + "/other/../checkpoints", directory.File("link"),
        directory.File("link/checkpoints/step-0000000005")}) {
    EXPECT_TRUE(ResumesOwn(from, output)) << from;
    EXPECT_TRUE(ResumesOwn(from, output + "/")) << from;
    EXPECT_TRUE(ResumesOwn(from, directory.File("link"))) << from;
  }
  for (const std::string& from :
       {std::string(), directory.File(""), output + "/checkpoints-old/step-0000000005",
        directory.File("outer"), output + "/checkpoints/../.."}) {
    EXPECT_FALSE(ResumesOwn(from, output)) << from;
  }
}

TEST_F(CheckpointTest, PruningKeepsTheNewestAndWhatIsToCome) {
  for (int64_t step : {10, 20, 30, 40, 60}) Write(step);
  ASSERT_TRUE(WriteShares(35).ok());
  ASSERT_TRUE(WriteShares(50).ok());
  WriteBytes(root_ + "/notes.txt", "of the user");
  EXPECT_THAT(PruneCheckpoints(root_, 40, 2), IsEmpty());
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(root_))
    left.push_back(entry.path().filename());
  EXPECT_THAT(
      left, ::testing::UnorderedElementsAre("step-0000000030", "step-0000000040", "step-0000000050",
                                            "step-0000000060", "notes.txt"));
}

TEST_F(CheckpointTest, OneThatIsNotToStayIsThereUntilTheNext) {
  const auto to_stay = [](int64_t step) { return step % 10 == 0; };
  for (int64_t step : {5, 10, 15, 20, 25}) Write(step);
  EXPECT_THAT(PruneCheckpoints(root_, 25, 1, {}, to_stay), IsEmpty());
  for (int64_t step : {20, 25}) EXPECT_TRUE(std::filesystem::exists(Directory(step))) << step;
  for (int64_t step : {5, 10, 15}) EXPECT_FALSE(std::filesystem::exists(Directory(step))) << step;
  Write(30);
  EXPECT_THAT(PruneCheckpoints(root_, 30, 2, {}, to_stay), IsEmpty());
  for (int64_t step : {20, 30}) EXPECT_TRUE(std::filesystem::exists(Directory(step))) << step;
  EXPECT_FALSE(std::filesystem::exists(Directory(25)));
}

TEST_F(CheckpointTest, PruningLeavesOthersFilesAlone) {
  const std::string users = root_ + "/step-0000000001";
  std::filesystem::create_directories(users + "/model-00001.safetensors.d");
  WriteBytes(users + "/thesis.tex", "of the user");
  for (int64_t step : {10, 20}) Write(step);
  WriteBytes(Directory(10) + "/notes.txt", "of the user");
  WriteBytes(Directory(10) + "/model-00007.safetensors.123.tmp", "unfinished");
  EXPECT_THAT(PruneCheckpoints(root_, 20, 1), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(users + "/thesis.tex"));
  EXPECT_TRUE(std::filesystem::exists(users + "/model-00001.safetensors.d"));
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(Directory(10)))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, ::testing::ElementsAre("notes.txt"));
  EXPECT_EQ(Newest(), 20);
}

TEST_F(CheckpointTest, RunsAreToldApart) {
  for (int64_t step : {10, 20, 30}) Write(step);
  run_ = "jobs-7-b2";
  for (int64_t step : {5, 15, 25}) Write(step);
  const auto newest = [&](const std::set<std::string>& runs) {
    const auto found = Checkpoint::Find(output_, &skipped_, runs);
    return found.ok() ? found->manifest().step : -1;
  };
  EXPECT_EQ(newest({}), 30);
  EXPECT_EQ(newest({run_}), 25);
  EXPECT_EQ(newest({"jobs-7-a1"}), -1);
  EXPECT_EQ(newest({"jobs-7-a1", ""}), 30);
  EXPECT_THAT(skipped_, IsEmpty());
  EXPECT_THAT(PruneCheckpoints(root_, 25, 1, {run_}), IsEmpty());
  for (int64_t step : {10, 20, 25, 30}) EXPECT_TRUE(std::filesystem::exists(Directory(step)));
  for (int64_t step : {5, 15}) EXPECT_FALSE(std::filesystem::exists(Directory(step)));
}

TEST_F(CheckpointTest, WhatIsUnfinishedGoesButForOneThatMayBeCompleted) {
  for (int64_t step : {10, 50}) Write(step);
  for (int64_t step : {20, 30, 40}) ASSERT_TRUE(WriteShares(step).ok());
  WriteBytes(Directory(40) + "/model-00007.safetensors.123.tmp", "unfinished");
  WriteBytes(Directory(20) + "/notes.txt", "of the user");
  EXPECT_THAT(DropUnfinished(root_, {30}), IsEmpty());
  EXPECT_EQ(NamesIn(root_), (std::vector<std::string>{"step-0000000010", "step-0000000020",
                                                      "step-0000000030", "step-0000000050"}));
  EXPECT_THAT(NamesIn(Directory(20)), ElementsAre("notes.txt"));
  EXPECT_EQ(NamesIn(Directory(30)).size(), 3);
  EXPECT_EQ(Newest(), 50);
  EXPECT_THAT(DropUnfinished(directory_.File("nowhere"), {}), IsEmpty());
}

TEST_F(CheckpointTest, NothingIsRemovedThatALinkLeadsTo) {
  const std::string others = directory_.File("others");
  std::filesystem::create_directories(others);
  WriteBytes(others + "/model-00000.safetensors", "of another job");
  std::filesystem::create_directories(Directory(10));
  std::filesystem::create_directory_symlink(others, Directory(20));
  std::filesystem::create_symlink(others + "/model-00000.safetensors",
                                  Directory(10) + "/model-00000.safetensors");
  ASSERT_EQ(mkfifo((Directory(10) + "/model-00001.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(DropUnfinished(root_, {}), IsEmpty());
  EXPECT_THAT(PruneCheckpoints(root_, 30, 0), IsEmpty());
  EXPECT_THAT(NamesIn(others), ElementsAre("model-00000.safetensors"));
  EXPECT_THAT(NamesIn(Directory(10)),
              ElementsAre("model-00000.safetensors", "model-00001.safetensors"));
  EXPECT_TRUE(std::filesystem::is_symlink(Directory(20)));
}

TEST_F(CheckpointTest, WorkersMayRemoveTheSameAtOnce) {
  for (int64_t step = 1; step <= 100; ++step) std::filesystem::create_directories(Directory(step));
  std::vector<std::vector<std::string>> left(4);
  std::vector<std::thread> workers;
  for (std::vector<std::string>& own : left)
    workers.emplace_back([&] { own = PruneCheckpoints(root_, 1000, 0); });
  for (std::thread& worker : workers) worker.join();
  EXPECT_THAT(left, ::testing::Each(IsEmpty()));
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheLastOneGood) {
  Write(10);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{16, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const absl::Status status = WriteShares(20).status();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Directory(20)));
  EXPECT_EQ(Newest(), 10);
  Write(30);
  EXPECT_EQ(Newest(), 30);
}

TEST_F(CheckpointTest, WhatCannotBeWrittenLeavesNothing) {
  const std::vector<float> small = {1};
  const std::vector<float> large(1 << 20);
  const auto write = [&](DeviceId device) {
    return WriteDeviceFiles(Directory(10), device, {View("a", DType::kFloat32, {1}, small)},
                            {View("a.exp_avg", DType::kFloat32, {1 << 20}, large)}, {})
        .status();
  };
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{1 << 12, before.rlim_max};  // Only the first of two files fits.
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  EXPECT_THAT(std::string(write(DeviceId(1)).message()), HasSubstr("optimizer-00001.safetensors"));
  EXPECT_TRUE(std::filesystem::is_empty(Directory(10)));
  // What other devices have written is not ours.
  WriteBytes(Directory(10) + "/model-00002.safetensors", "of another device");
  EXPECT_FALSE(write(DeviceId(1)).ok());
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(Directory(10)))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, ElementsAre("model-00002.safetensors"));
}

TEST_F(CheckpointTest, ADeviceThatFailsDoesNotTakeTheDirectoryFromAnother) {
  const std::vector<float> bias = {3};
  std::atomic<bool> over = false;
  std::thread failing([&] {
    // Its name is taken by a directory, so that its file cannot be written.
    std::filesystem::create_directories(Directory(10) + "/model-00001.safetensors/taken");
    while (!over) {
      EXPECT_FALSE(WriteDeviceFiles(Directory(10), DeviceId(1),
                                    {View("a", DType::kFloat32, {1}, bias)}, {}, {})
                       .ok());
    }
  });
  for (int i = 0; i < 200; ++i) {
    const auto files = WriteDeviceFiles(Directory(10), DeviceId(3),
                                        {View("bias", DType::kFloat32, {1}, bias)}, {}, {});
    EXPECT_TRUE(files.ok()) << files.status();
    if (files.ok()) std::filesystem::remove(Directory(10) + "/model-00003.safetensors");
  }
  over = true;
  failing.join();
}

TEST_F(CheckpointTest, ItsDirectoriesAreDurableBeforeItsManifestIs) {
  const auto files = WriteShares(10);
  ASSERT_TRUE(files.ok()) << files.status();
  synced.clear();
  Manifest manifest;
  manifest.files = *files;
  ASSERT_EQ(CompleteCheckpoint(Directory(10), graph_, manifest), absl::OkStatus());
  const auto real = [](const std::string& path) {
    return std::filesystem::canonical(path).string();
  };
  EXPECT_THAT(synced, ElementsAre(real(root_), real(output_), HasSubstr("/manifest.json."),
                                  real(Directory(10))));
}

TEST_F(CheckpointTest, AParameterInNoFileIsRefused) {
  auto files = WriteShares(10);
  ASSERT_TRUE(files.ok());
  Manifest manifest;
  for (const CheckpointFile& file : *files) {
    if (file.name != "model-00003.safetensors") manifest.files.push_back(file);
  }
  EXPECT_EQ(CompleteCheckpoint(Directory(10), graph_, manifest).message(),
            Directory(10) + ": no file has parameter \"bias\"");
}

TEST_F(CheckpointTest, ATensorInTwoFilesIsRefused) {
  auto files = WriteShares(10);
  ASSERT_TRUE(files.ok());
  const std::vector<float> bias = {3};
  auto again = WriteDeviceFiles(Directory(10), DeviceId(4),
                                {View("bias", DType::kFloat32, {1}, bias)}, {}, {});
  ASSERT_TRUE(again.ok());
  Manifest manifest;
  manifest.files = *files;
  manifest.files.push_back(again->at(0));
  EXPECT_THAT(std::string(CompleteCheckpoint(Directory(10), graph_, manifest).message()),
              HasSubstr("\"bias\" is in model-00003.safetensors, too"));
}

}  // namespace
}  // namespace stagewright::testing
