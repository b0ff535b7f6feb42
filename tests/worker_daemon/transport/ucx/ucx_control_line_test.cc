#include "worker_daemon/transport/ucx/ucx_control_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"
#include "worker_daemon/transport/ucx/ucx_endpoint.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

const std::string kKey(GenerationKey::kBytes, 'k');

// Device 3, which speaks to device 4.
class UcxControlLineTest : public ::testing::Test {
 protected:
  ~UcxControlLineTest() override {
    endpoint_.Close();
    line_.StopListening();
    peer_line_.StopListening();
  }
  void SetUp() override {
    ASSERT_EQ(endpoint_.Open(*worker_, peer_->address(), [](ucs_status_t) {}), UCS_OK);
  }

  // Waits for that many more messages at the peer.
  std::vector<UcxControlMessage> Heard(size_t count) {
    std::vector<UcxControlMessage> heard;
    EXPECT_TRUE(StepUntil(
        [&] {
          Progress({worker_.get(), peer_.get()});
          for (UcxControlMessage& message : peer_line_.Take()) heard.push_back(std::move(message));
          peer_line_.Listen();
        },
        [&] { return heard.size() >= count; }));
    return heard;
  }

  std::unique_ptr<UcxWorker> owned_ = MakeUcxWorker(), peer_owned_ = MakeUcxWorker();
  const GenerationKey key_{{"job", 7, 3}, kKey}, peer_key_{{"job", 7, 4}, kKey};
  UcxControlLine line_{{"job", 7, 3}, &key_, owned_.get()};
  UcxControlLine peer_line_{{"job", 7, 4}, &peer_key_, peer_owned_.get()};
  UcxEndpoint endpoint_;
  // Last, so that the workers end first.
  std::unique_ptr<UcxWorker> worker_ = std::move(owned_), peer_ = std::move(peer_owned_);
};

TEST_F(UcxControlLineTest, SaysWhoAndWhat) {
  bool sent = false;
  line_.Send(endpoint_.get(), 4, UcxControl::kBye, "enough", [&] { sent = true; });
  const std::vector<UcxControlMessage> heard = Heard(1);
  ASSERT_EQ(heard.size(), 1);
  EXPECT_EQ(heard[0].from, 3);
  EXPECT_EQ(heard[0].type, UcxControl::kBye);
  EXPECT_EQ(heard[0].text, "enough");
  EXPECT_TRUE(StepUntil([&] { Progress({worker_.get(), peer_.get()}); }, [&] { return sent; }));
}

TEST_F(UcxControlLineTest, CutsWhatIsTooLong) {
  line_.Send(endpoint_.get(), 4, UcxControl::kBye, std::string(1000, 'x'), [] {});
  EXPECT_EQ(Heard(1).at(0).text, std::string(UcxControlLine::kMaxText, 'x'));
}

TEST_F(UcxControlLineTest, KeepsTheOrderOfMoreThanItHasReceivesFor) {
  for (int i = 0; i < 50; ++i) {
    line_.Send(endpoint_.get(), 4, UcxControl::kHello, absl::StrCat(i), [] {});
  }
  const std::vector<UcxControlMessage> heard = Heard(50);
  ASSERT_EQ(heard.size(), 50);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(heard[i].text, absl::StrCat(i));
}

TEST_F(UcxControlLineTest, DoesNotHearOtherGenerations) {
  UcxControlLine other({"job", 8, 3}, &key_, worker_.get());
  other.Send(endpoint_.get(), 4, UcxControl::kHello, "other", [] {});
  line_.Send(endpoint_.get(), 4, UcxControl::kHello, "own", [] {});
  const std::vector<UcxControlMessage> heard = Heard(1);
  ASSERT_EQ(heard.size(), 1);
  EXPECT_EQ(heard[0].text, "own");
  other.StopListening();
}

TEST_F(UcxControlLineTest, DoesNotHearWhoDoesNotProveTheKeyAndSaysSoOnce) {
  const GenerationKey none({"job", 7, 3}, ""), wrong({"job", 7, 3}, std::string(kKey.size(), 'w'));
  const GenerationKey older({"job", 6, 3}, kKey);
  ::testing::internal::CaptureStderr();
  std::vector<std::unique_ptr<UcxControlLine>> strangers;  // Until all they say has come.
  for (const GenerationKey* key : {&none, &wrong, &older}) {
    strangers.push_back(
        std::make_unique<UcxControlLine>(TransportIdentity{"job", 7, 3}, key, worker_.get()));
    UcxControlLine& stranger = *strangers.back();
    for (const UcxControl type : {UcxControl::kHello, UcxControl::kHelloAnswer, UcxControl::kBye})
      stranger.Send(endpoint_.get(), 4, type, "I am device 3", [] {});
    // As long as there is.
    stranger.Send(endpoint_.get(), 4, UcxControl::kBye, std::string(UcxControlLine::kMaxText, 'x'),
                  [] {});
    stranger.StopListening();
  }
  line_.Send(endpoint_.get(), 4, UcxControl::kHello, "own", [] {});
  const std::vector<UcxControlMessage> heard = Heard(1);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(heard.size(), 1);
  EXPECT_EQ(heard[0].text, "own");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("does not prove the job's key"));
  EXPECT_THAT(log, HasSubstr("job=job generation=7 device=4 claimed_device=3"));
}

}  // namespace
}  // namespace stagewright::testing
