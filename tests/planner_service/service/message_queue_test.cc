#include "planner_service/service/message_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Writes a message when the test says so, as a slow reader would have it.
class SlowReactor {
 public:
  void StartWrite(const std::string* message) { written.push_back(*message); }
  void Finish(const grpc::Status& status) { finished.push_back(status.error_code()); }

  std::vector<std::string> written;
  std::vector<grpc::StatusCode> finished;
};

class MessageQueueTest : public ::testing::Test {
 protected:
  SlowReactor reactor_;
  MessageQueue<SlowReactor, std::string> queue_{&reactor_};
};

TEST_F(MessageQueueTest, OnlyTheNewestOfTheAnswersOnTheWayWaitsAndTheFinalOneBehindIt) {
  for (int i = 1; i <= 1000; ++i)
    EXPECT_TRUE(queue_.Push("better " + std::to_string(i), /*replace_waiting=*/true));
  EXPECT_TRUE(queue_.Push("final"));
  queue_.Close(grpc::Status::OK);
  EXPECT_THAT(reactor_.written, ElementsAre("better 1"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(reactor_.finished, IsEmpty());
    queue_.OnWriteDone(/*ok=*/true);
  }
  EXPECT_THAT(reactor_.written, ElementsAre("better 1", "better 1000", "final"));
  EXPECT_THAT(reactor_.finished, ElementsAre(grpc::StatusCode::OK));
}

TEST_F(MessageQueueTest, WhatIsNotToBeReplacedComesInOrder) {
  for (const char* message : {"a", "b", "c"}) EXPECT_TRUE(queue_.Push(message));
  for (int i = 0; i < 3; ++i) queue_.OnWriteDone(/*ok=*/true);
  EXPECT_THAT(reactor_.written, ElementsAre("a", "b", "c"));
  EXPECT_THAT(reactor_.finished, IsEmpty());
}

TEST_F(MessageQueueTest, AfterTheEndNothingIsTaken) {
  EXPECT_TRUE(queue_.Push("a"));
  EXPECT_TRUE(queue_.Push("b"));
  queue_.Abort(grpc::Status::CANCELLED);
  EXPECT_FALSE(queue_.Push("c"));
  queue_.OnWriteDone(/*ok=*/true);
  EXPECT_THAT(reactor_.written, ElementsAre("a"));
  EXPECT_THAT(reactor_.finished, ElementsAre(grpc::StatusCode::CANCELLED));
}

TEST_F(MessageQueueTest, AStreamThatBreaksEndsOnce) {
  EXPECT_TRUE(queue_.Push("a"));
  EXPECT_TRUE(queue_.Push("b"));
  queue_.OnWriteDone(/*ok=*/false);
  queue_.Close(grpc::Status::OK);
  EXPECT_THAT(reactor_.written, ElementsAre("a"));
  EXPECT_THAT(reactor_.finished, ElementsAre(grpc::StatusCode::UNAVAILABLE));
}

}  // namespace
}  // namespace stagewright
