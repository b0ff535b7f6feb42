#include "worker_daemon/daemon/places/path_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "worker_daemon/checkpoint/output_owner.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PathChecksTest : public ::testing::Test {
 protected:
  PathChecksTest() {
    std::string pattern = ::testing::TempDir() + "/checks-XXXXXX";
    base_ = mkdtemp(pattern.data());
    for (const char* file : {"w.safetensors", "x.npy", "target.npy"})
      std::ofstream(At(file)) << "x";
    message_.set_job("jobs/7");
    message_.set_run("jobs-7-a1");
    v1::JobSpec& spec = *message_.mutable_spec();
    spec.mutable_graph()->add_inputs()->set_name("x");
    spec.mutable_graph()->add_inputs()->set_name("target");
    spec.set_weights_path(At("w.safetensors"));
    spec.set_data_path(Pairs("x.npy", "target.npy"));
    spec.set_output_path(At("runs/first"));
  }
  ~PathChecksTest() override { fs::remove_all(base_); }

  std::string At(const std::string& path) const { return base_ / path; }
  std::string Pairs(const std::string& x, const std::string& target) const {
    return "x=" + At(x) + ",target=" + At(target);
  }
  v1::JobSpec& spec() { return *message_.mutable_spec(); }
  std::string Error() const { return std::string(CheckPlaces({roots_, {}}, message_).message()); }

  fs::path base_;
  PathRoots roots_;
  v1::CheckPaths message_;
};

TEST_F(PathChecksTest, WhatIsThereIsRightAndNothingIsMade) {
  EXPECT_EQ(CheckPlaces({roots_, {}}, message_), absl::OkStatus());
  EXPECT_FALSE(fs::exists(At("runs")));
}

TEST_F(PathChecksTest, NamesFieldAndPathOfWhatIsMissing) {
  const v1::CheckPaths good = message_;
  spec().set_weights_path(At("no.safetensors"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("spec.weights_path: "), HasSubstr(At("no.safetensors"))));
  message_ = good;
  spec().set_data_path(Pairs("x.npy", "no.npy"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("spec.data_path: "), HasSubstr(At("no.npy"))));
  spec().set_data_path(At("no-*.npy"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("spec.data_path: "), HasSubstr("no-*.npy")));
  message_ = good;
  spec().set_evaluation_data_path(At("no"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("spec.evaluation_data_path: "), HasSubstr(At("no"))));
  message_ = good;
  spec().set_resume_path(At("no-run"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("spec.resume_path: "), HasSubstr(At("no-run"))));
}

TEST_F(PathChecksTest, AFifoIsNoFileAndIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(At("pipe").c_str(), 0600), 0);
  spec().set_weights_path(At("pipe"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("spec.weights_path: "), HasSubstr(At("pipe"))));
}

TEST_F(PathChecksTest, AnOutputThatCannotBeMadeIsNamed) {
  spec().set_output_path(At("x.npy/run"));
  EXPECT_THAT(Error(), AllOf(HasSubstr("spec.output_path: "), HasSubstr("x.npy is no directory")));
  fs::create_symlink(base_ / "gone", base_ / "link");
  spec().set_output_path(At("link/run"));
  EXPECT_THAT(Error(), HasSubstr("link is a link to what is not there"));
}

TEST_F(PathChecksTest, AnotherJobsOutputIsRefusedUnlessItIsTakenOver) {
  fs::create_directories(At("runs/first"));
  ASSERT_TRUE(
      TakeOutput(At("runs/first"), {"jobs-7-b2", "jobs/7", "digits"}, OthersResults::kRefused)
          .ok());
  EXPECT_EQ(Error(), "");
  std::ofstream(At("runs/first/model.safetensors")) << "trained";
  EXPECT_THAT(Error(), HasSubstr("job \"digits\" (jobs/7, run jobs-7-b2)"));
  spec().set_resume_path(At("runs/first"));
  EXPECT_EQ(Error(), "");
  spec().clear_resume_path();
  spec().set_overwrite(true);
  EXPECT_EQ(Error(), "");
}

TEST_F(PathChecksTest, WhereAJobStillWritesNoOtherDoesUnderAnyName) {
  fs::create_directories(At("runs/first"));
  ASSERT_TRUE(
      TakeOutput(At("runs/first"), {"jobs-7-b2", "jobs/7", "digits"}, OthersResults::kRefused)
          .ok());
  fs::create_directory_symlink(At("runs"), At("alias"));
  message_.add_unfinished_runs("jobs-6-a1");
  spec().set_output_path(At("alias/first"));
  EXPECT_EQ(Error(), "");
  message_.add_unfinished_runs("jobs-7-b2");
  const auto in_use =
      AllOf(HasSubstr("spec.output_path: "), HasSubstr(At("alias/first")),
            HasSubstr("job \"digits\" (jobs/7, run jobs-7-b2)"), HasSubstr("has not ended"));
  EXPECT_THAT(Error(), in_use);
  spec().set_overwrite(true);
  EXPECT_THAT(Error(), in_use);
  spec().set_resume_path(At("alias/first"));
  EXPECT_THAT(Error(), in_use);
}

TEST_F(PathChecksTest, WhatLeavesTheRootsIsRefused) {
  roots_.output = At("elsewhere");
  EXPECT_EQ(CheckPlaces({roots_, {}}, message_).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(PathChecksTest, CheckpointsThatAreLinksDoNotLeaveTheRoots) {
  for (const char* folder : {"data", "out/run", "out/old/step-1", "secret/step-1"})
    fs::create_directories(At(folder));
  roots_ = {base_.string(), At("out")};
  spec().set_output_path(At("out/run"));
  const auto code = [this] { return CheckPlaces({roots_, {}}, message_).code(); };
  const auto link = [this](const std::string& to, const std::string& from) {
    fs::remove_all(At(from));
    fs::create_directories(fs::path(At(from)).parent_path());
    fs::create_directory_symlink(At(to), At(from));
  };
  EXPECT_EQ(code(), absl::StatusCode::kOk);
  link("out/old", "out/run/checkpoints");
  EXPECT_EQ(code(), absl::StatusCode::kOk);
  for (const char* to : {"secret", "secret/not-there"}) {
    link(to, "out/run/checkpoints");
    EXPECT_EQ(code(), absl::StatusCode::kPermissionDenied) << to;
    fs::remove(At("out/run/checkpoints"));
    link(to, "out/run/checkpoints/step-0000000002");
    EXPECT_EQ(code(), absl::StatusCode::kPermissionDenied) << to;
    fs::remove_all(At("out/run/checkpoints"));
  }
  EXPECT_EQ(code(), absl::StatusCode::kOk);
  roots_.data = At("data");
  spec().clear_weights_path();
  spec().clear_data_path();
  spec().set_resume_path(At("data/before"));
  for (const char* from :
       {"data/before/checkpoints", "data/before/checkpoints/step-1", "data/before/step-1"}) {
    link("secret", from);
    const absl::Status status = CheckPlaces({roots_, {}}, message_);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << from;
    EXPECT_THAT(std::string(status.message()), HasSubstr("spec.resume_path: ")) << from;
    fs::remove_all(At("data/before"));
  }
}

TEST_F(PathChecksTest, AnswersInOrderOnAnotherThread) {
  absl::Mutex mutex;
  std::vector<v1::PathsChecked> answers;
  PathChecks checks({roots_, {}}, [&](const v1::ConnectRequest& answer) {
    absl::MutexLock lock(&mutex);
    answers.push_back(answer.paths_checked());
  });
  checks.Add(message_);
  message_.set_generation(1);
  spec().set_weights_path(At("no.safetensors"));
  checks.Add(message_);
  const auto both = [&] { return answers.size() == 2; };
  absl::MutexLock lock(&mutex);
  ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&both), absl::Seconds(30)));
  EXPECT_EQ(answers[0].job(), "jobs/7");
  EXPECT_EQ(answers[0].code(), 0);
  EXPECT_EQ(answers[1].generation(), 1);
  EXPECT_EQ(answers[1].code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_THAT(answers[1].message(), HasSubstr(At("no.safetensors")));
}

}  // namespace
}  // namespace stagewright
