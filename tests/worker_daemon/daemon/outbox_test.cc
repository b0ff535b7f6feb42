#include "worker_daemon/daemon/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"

namespace stagewright {
namespace {

v1::ConnectRequest ProgressOf(const std::string& job, int64_t generation, int device, int64_t step,
                              bool traced = false) {
  v1::ConnectRequest message;
  v1::Progress* progress = message.mutable_progress();
  progress->set_job(job);
  progress->set_generation(generation);
  progress->set_step(step);
  progress->add_devices()->set_device(device);
  if (traced) progress->add_trace();
  return message;
}

TEST(Outbox, KeepsLittleWhileThePlannerIsAway) {
  constexpr int kSteps = 20000;
  Outbox outbox;
  v1::ConnectRequest prepared;
  prepared.mutable_prepared()->set_job("jobs/1");
  outbox.Push(prepared);
  for (int step = 1; step <= kSteps; ++step) {
    for (int device : {0, 1}) outbox.Push(ProgressOf("jobs/1", 1, device, step, step == 9000));
  }
  EXPECT_LE(outbox.size(), Outbox::kBound + 4);
  // What is left has the answer, both traces, and the last step of both devices, in order.
  int64_t last[] = {0, 0};
  int answers = 0, traces = 0;
  while (auto message = outbox.Pop(absl::ZeroDuration())) {
    if (message->has_prepared()) ++answers;
    if (!message->has_progress()) continue;
    traces += message->progress().trace_size();
    int64_t& before = last[message->progress().devices(0).device()];
    EXPECT_LT(before, message->progress().step());
    before = message->progress().step();
  }
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(traces, 2);
  EXPECT_EQ(last[0], kSteps);
  EXPECT_EQ(last[1], kSteps);
}

TEST(Outbox, KeepsTheLatestOfTheStepsSoFar) {
  Outbox outbox;
  const auto push = [&](const std::string& job, int devices) {
    v1::ConnectRequest message;
    message.mutable_steps_so_far()->set_job(job);
    for (int i = 0; i < devices; ++i) message.mutable_steps_so_far()->add_devices();
    outbox.Push(message);
  };
  push("jobs/1", 1);
  push("jobs/2", 2);
  push("jobs/1", 3);
  EXPECT_EQ(outbox.Pop(absl::ZeroDuration())->steps_so_far().devices_size(), 3);
  EXPECT_EQ(outbox.Pop(absl::ZeroDuration())->steps_so_far().devices_size(), 2);
  EXPECT_EQ(outbox.size(), 0u);
}

TEST(Outbox, TheStepsSoFarGoBeforeThoseThatCameLater) {
  Outbox outbox;
  outbox.Push(ProgressOf("jobs/1", 1, 0, 13705));
  v1::ConnectRequest steps;
  steps.mutable_steps_so_far()->set_job("jobs/1");
  outbox.Push(steps);
  EXPECT_TRUE(outbox.Pop(absl::ZeroDuration())->has_steps_so_far());
  EXPECT_TRUE(outbox.Pop(absl::ZeroDuration())->has_progress());
}

// Steps that were left out are asked for once little waits, and once; those so far have them.
TEST(Outbox, NamesJobsThatLackSteps) {
  Outbox outbox;
  const auto push = [&](const std::string& job, size_t steps) {
    for (size_t step = 1; step <= steps; ++step) outbox.Push(ProgressOf(job, 1, 0, step));
  };
  push("jobs/1", Outbox::kBound);
  EXPECT_TRUE(outbox.LackingSteps().empty());
  push("jobs/2", 2);  // The second takes the place of the first.
  while (outbox.size() > Outbox::kBound / 2) {
    EXPECT_TRUE(outbox.LackingSteps().empty());
    outbox.Pop(absl::ZeroDuration());
  }
  EXPECT_THAT(outbox.LackingSteps(), ::testing::ElementsAre("jobs/2"));
  EXPECT_TRUE(outbox.LackingSteps().empty());
  push("jobs/1", 2 * Outbox::kBound);
  v1::ConnectRequest steps;
  steps.mutable_steps_so_far()->set_job("jobs/1");
  outbox.Push(steps);
  while (outbox.Pop(absl::ZeroDuration()).has_value()) {
  }
  EXPECT_TRUE(outbox.LackingSteps().empty());
}

TEST(Outbox, ForgetsRunsThatEnded) {
  Outbox outbox;
  outbox.Push(ProgressOf("jobs/1", 1, 0, 5));
  outbox.Push(ProgressOf("jobs/1", 2, 0, 1));
  outbox.Push(ProgressOf("jobs/2", 1, 0, 3));
  outbox.Forget("jobs/1", 1);
  EXPECT_EQ(outbox.Pop(absl::ZeroDuration())->progress().generation(), 2);
  EXPECT_EQ(outbox.Pop(absl::ZeroDuration())->progress().job(), "jobs/2");
  EXPECT_EQ(outbox.size(), 0u);
}

v1::ConnectRequest FailedOf(const std::string& job, int64_t generation) {
  v1::ConnectRequest message;
  message.mutable_failed()->set_job(job);
  message.mutable_failed()->set_generation(generation);
  return message;
}

LogLine Logged(const std::string& message, const std::string& job, int64_t generation) {
  return {absl::Now(), LogLevel::kInfo, "", message, {{"job", job}, {"generation", generation}}};
}

TEST(Outbox, WhatWasLoggedGoesLastButBeforeTheEndOfItsRun) {
  Outbox outbox;
  outbox.Tell(Logged("why", "jobs/1", 2));
  outbox.Tell(Logged("of another", "jobs/2", 1));
  outbox.Push(ProgressOf("jobs/1", 2, 0, 5));
  outbox.Push(FailedOf("jobs/1", 2));
  outbox.Push(FailedOf("jobs/1", 1));
  EXPECT_TRUE(outbox.Pop(absl::ZeroDuration())->has_progress());
  EXPECT_EQ(outbox.Pop(absl::ZeroDuration())->log_lines().lines(0).message(), "why");
  EXPECT_TRUE(outbox.Pop(absl::ZeroDuration())->has_failed());
  EXPECT_TRUE(outbox.Pop(absl::ZeroDuration())->has_failed());
  EXPECT_EQ(outbox.Pop(absl::ZeroDuration())->log_lines().job(), "jobs/2");
  // No more often than once a second, and then without anything else that happens.
  outbox.Tell(Logged("more", "jobs/2", 1));
  EXPECT_FALSE(outbox.Pop(absl::ZeroDuration()).has_value());
  EXPECT_EQ(outbox.Pop(absl::Seconds(60))->log_lines().lines(0).message(), "more");
}

TEST(Outbox, WhatIsLoggedWhileItWaitsWakesIt) {
  Outbox outbox;
  std::thread logs([&] { outbox.Tell(Logged("now", "jobs/1", 1)); });
  EXPECT_EQ(outbox.Pop(absl::Seconds(60))->log_lines().lines(0).message(), "now");
  logs.join();
}

}  // namespace
}  // namespace stagewright
