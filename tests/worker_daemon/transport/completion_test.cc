#include "worker_daemon/transport/completion.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"

namespace stagewright {
namespace {

// Operations end when the test says so, or when it is aborted.
class HeldTransport : public Transport {
 public:
  int device() const override { return 3; }
  std::string Address() const override { return ""; }
  absl::Status Connect(const std::vector<Peer>&, absl::Time) override { return absl::OkStatus(); }
  void Send(int, Tag, const void*, size_t, Done done) override { Start(std::move(done)); }
  void Receive(int, Tag, void*, size_t, Done done) override { Start(std::move(done)); }
  void Abort(absl::Status status) override {
    aborted = status;
    End(status);
  }
  void End(const absl::Status& status) {
    for (const Done& done : std::exchange(held_, {})) done(status);
  }

  absl::Status aborted;
  bool ends_at_once = false;

 private:
  void Start(Done done) {
    held_.push_back(std::move(done));
    if (ends_at_once) End(absl::DataLossError("torn"));
  }

  std::vector<Done> held_;
};

TEST(Completion, IsTheStatusOfItsOperation) {
  HeldTransport transport;
  const Completion completion;
  const Transport::Done done = completion.Callback();
  std::thread other([&] { done(absl::DataLossError("torn")); });
  EXPECT_EQ(completion.Wait(transport, absl::InfiniteFuture()), absl::DataLossError("torn"));
  other.join();
  EXPECT_EQ(transport.aborted, absl::OkStatus());
}

TEST(Completion, OfAnOperationThatEndedIsThereAfterTheDeadline) {
  HeldTransport transport;
  const Completion completion;
  EXPECT_FALSE(completion.done());
  completion.Callback()(absl::OkStatus());
  EXPECT_TRUE(completion.done());
  EXPECT_EQ(completion.Wait(transport, absl::InfinitePast()), absl::OkStatus());
  EXPECT_EQ(transport.aborted, absl::OkStatus());
}

TEST(Completion, AbortsTheTransportWhenTheDeadlinePasses) {
  HeldTransport transport;
  const Completion completion;
  transport.Send(1, {}, nullptr, 0, completion.Callback());
  const absl::Status late = completion.Wait(transport, absl::Now() + absl::Milliseconds(5));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "device 3: a transfer did not end in time");
  EXPECT_EQ(transport.aborted, late);
}

TEST(Completion, MayGoBeforeItsCallback) {
  Transport::Done done = Completion().Callback();
  done(absl::OkStatus());
}

TEST(Completion, BlockingCallsEndWithTheirOperation) {
  HeldTransport transport;
  transport.ends_at_once = true;
  char byte = 0;
  EXPECT_EQ(SendAndWait(transport, 1, {}, &byte, 1, absl::InfiniteFuture()),
            absl::DataLossError("torn"));
  EXPECT_EQ(ReceiveAndWait(transport, 1, {}, &byte, 1, absl::InfiniteFuture()),
            absl::DataLossError("torn"));
}

}  // namespace
}  // namespace stagewright
