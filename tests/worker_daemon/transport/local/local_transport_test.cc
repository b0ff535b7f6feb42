#include "worker_daemon/transport/local/local_transport.h"

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/worlds.h"
#include "worker_daemon/transport/completion.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright::testing {
namespace {

constexpr Tag kTag{4, Traffic::kActivation, 1};

struct Received {
  absl::StatusOr<ReferenceTransport::Object> object = absl::UnknownError("not done");
  absl::Notification done;
};

std::shared_ptr<Received> Receive(Transport& transport, int peer, Tag tag) {
  auto received = std::make_shared<Received>();
  transport.ByReference(peer)->ReceiveObject(
      peer, tag, [received](absl::StatusOr<ReferenceTransport::Object> object) {
        received->object = std::move(object);
        received->done.Notify();
      });
  return received;
}

class ReferenceTest : public ::testing::TestWithParam<Implementation> {
 protected:
  World world_ = ConnectedWorld(GetParam(), 2);
};

TEST_P(ReferenceTest, HandsOverTheObjectItself) {
  for (const bool receive_first : {true, false}) {
    const auto object = std::make_shared<std::vector<int>>(1000, 7);
    std::shared_ptr<Received> received;
    if (receive_first) received = Receive(*world_[1], 0, kTag);
    Completion sent;
    world_[0]->ByReference(1)->SendObject(1, kTag, object, sent.Callback());
    if (!receive_first) received = Receive(*world_[1], 0, kTag);
    EXPECT_EQ(sent.Wait(*world_[0], Soon()), absl::OkStatus());
    ASSERT_TRUE(received->done.WaitForNotificationWithTimeout(kSoon));
    ASSERT_EQ(received->object.status(), absl::OkStatus());
    EXPECT_EQ(received->object->get(), object.get());
    EXPECT_EQ(object.use_count(), 2);  // The transport keeps nothing.
  }
}

TEST_P(ReferenceTest, BytesAndObjectsOfOneTagDoNotMeet) {
  auto received = Receive(*world_[1], 0, kTag);
  char in = 0;
  Completion bytes_received;
  world_[1]->Receive(0, kTag, &in, 1, bytes_received.Callback());
  const char out = 'x';
  EXPECT_EQ(SendAndWait(*world_[0], 1, kTag, &out, 1, Soon()), absl::OkStatus());
  EXPECT_EQ(bytes_received.Wait(*world_[1], Soon()), absl::OkStatus());
  EXPECT_EQ(in, 'x');
  EXPECT_FALSE(received->done.HasBeenNotified());
  Completion sent;
  world_[0]->ByReference(1)->SendObject(1, kTag, nullptr, sent.Callback());
  EXPECT_EQ(sent.Wait(*world_[0], Soon()), absl::OkStatus());
  received->done.WaitForNotification();
  EXPECT_EQ(received->object.status(), absl::OkStatus());
}

TEST_P(ReferenceTest, AnAbortFailsBothEndsAndDropsTheObject) {
  const auto object = std::make_shared<int>(1);
  Completion sent;
  world_[0]->ByReference(1)->SendObject(1, kTag, object, sent.Callback());
  auto received = Receive(*world_[1], 0, Tag{5});
  world_[0]->Abort(absl::AbortedError("enough"));
  EXPECT_EQ(sent.Wait(*world_[0], Soon()), absl::AbortedError("enough"));
  ASSERT_TRUE(received->done.WaitForNotificationWithTimeout(kSoon));
  EXPECT_EQ(received->object.status().code(), absl::StatusCode::kUnavailable);
  world_.clear();
  EXPECT_EQ(object.use_count(), 1);
}

TEST_P(ReferenceTest, IsNotOfferedToStrangers) {
  EXPECT_EQ(world_[0]->ByReference(0), nullptr);
  EXPECT_EQ(world_[0]->ByReference(7), nullptr);
}

std::vector<Implementation> WithReferences() {
  std::vector<Implementation> implementations = AllImplementations();
  std::erase_if(implementations,
                [](const Implementation& i) { return i.name != "Local" && i.name != "Routing"; });
  return implementations;
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceTest, ::testing::ValuesIn(WithReferences()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stagewright::testing
