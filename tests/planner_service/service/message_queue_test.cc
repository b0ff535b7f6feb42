#include "planner_service/service/message_queue.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"

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

TEST(BoundedMessageQueue, GivesUpAReaderThatDoesNotRead) {
  SlowReactor reactor;
  int given_up = 0;
  MessageQueue<SlowReactor, std::string> queue(
      &reactor,
      {10, [](const std::string& message) { return message.size(); }, [&] { ++given_up; }});
  EXPECT_TRUE(queue.Push(std::string(100, 'a'))) << "it is being written";
  EXPECT_TRUE(queue.Push("12345"));
  EXPECT_TRUE(queue.Push("67890"));
  EXPECT_EQ(given_up, 0);
  EXPECT_FALSE(queue.Push("x"));
  EXPECT_FALSE(queue.Push("y"));
  EXPECT_EQ(given_up, 1);
  EXPECT_THAT(reactor.finished, IsEmpty()) << "a write is under way";
  queue.OnWriteDone(/*ok=*/false);
  EXPECT_EQ(reactor.written.size(), 1);
  EXPECT_THAT(reactor.finished, ElementsAre(grpc::StatusCode::RESOURCE_EXHAUSTED));
}

TEST(BoundedMessageQueue, CountsOnlyWhatWaits) {
  SlowReactor reactor;
  MessageQueue<SlowReactor, std::string> queue(
      &reactor, {4, [](const std::string& message) { return message.size(); }, [] { FAIL(); }});
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(queue.Push("1234"));
    if (i > 0) queue.OnWriteDone(/*ok=*/true);
  }
  EXPECT_TRUE(queue.Push("5678", /*replace_waiting=*/true));
}

// A stream of a server with a queue like that of a worker's, filled until it takes no more.
class FilledStream : public grpc::ServerGenericBidiReactor {
 public:
  FilledStream(grpc::GenericCallbackServerContext* context, absl::Notification* done)
      : done_(done),
        queue_(this,
               {size_t{1} << 20, &grpc::ByteBuffer::Length, [context] { context->TryCancel(); }}) {
    StartRead(&incoming_);
    const grpc::Slice part(std::string(size_t{64} << 10, 'x'));
    while (queue_.Push(grpc::ByteBuffer(&part, 1))) ++taken_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) queue_.Abort(grpc::Status::OK);
  }
  void OnWriteDone(bool ok) override { queue_.OnWriteDone(ok); }
  void OnCancel() override { queue_.Abort(grpc::Status::CANCELLED); }
  void OnDone() override {
    EXPECT_GE(taken_, 16);
    done_->Notify();
    delete this;
  }

 private:
  absl::Notification* const done_;
  int taken_ = 0;
  grpc::ByteBuffer incoming_;
  MessageQueue<FilledStream, grpc::ByteBuffer> queue_;
};

class FilledService : public grpc::CallbackGenericService {
 public:
  absl::Notification done;

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new FilledStream(context, &done);
  }
};

class Unread : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  void OnDone(const grpc::Status& status) override {
    code = status.error_code();
    done.Notify();
  }

  absl::Notification done;
  grpc::StatusCode code = grpc::StatusCode::OK;
};

TEST(BoundedMessageQueue, EndsAStreamWhoseClientReadsNothing) {
  FilledService service;
  int port = 0;
  const std::unique_ptr<grpc::Server> server =
      grpc::ServerBuilder()
          .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port)
          .RegisterCallbackGenericService(&service)
          .BuildAndStart();
  ASSERT_NE(server, nullptr);
  grpc::GenericStub stub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  Unread client;
  stub.PrepareBidiStreamingCall(&context, "/any/Call", {}, &client);
  client.StartCall();
  service.done.WaitForNotification();
  client.done.WaitForNotification();
  EXPECT_EQ(client.code, grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace stagewright
