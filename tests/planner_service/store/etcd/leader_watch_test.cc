#include "planner_service/store/etcd/leader_watch.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner_service/store/etcd/etcd_election.h"
#include "tests/common/channel/loopback_server.h"
#include "tests/planner_service/store/etcd/etcd_server.h"

namespace stagewright {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// Whether it comes to be so.
bool Becomes(LeaderWatch& watch, const std::optional<std::string>& leader) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (watch.leader() != leader && absl::Now() < deadline) watch.AwaitChange(absl::Seconds(1));
  return watch.leader() == leader;
}

std::shared_ptr<EtcdClient> ClientOf(const std::string& endpoint) {
  return std::make_shared<EtcdClient>(EtcdPlace{{endpoint}, "/"}, kPatience);
}

TEST(LeaderWatch, HearsWhoLeadsAndThatNobodyDoes) {
  testing::EtcdServer server;
  const auto client = ClientOf(server.endpoint());
  LeaderWatch watch(client, "/p");
  EXPECT_TRUE(Becomes(watch, ""));
  ElectionState first = Campaign(client, "/p", "first", absl::Seconds(600)).value();
  EXPECT_TRUE(Becomes(watch, "first"));
  LeaderWatch late(client, "/p");
  EXPECT_TRUE(Becomes(late, "first"));
  first.won.reset();
  EXPECT_TRUE(Becomes(watch, ""));
  EXPECT_TRUE(Becomes(late, ""));
}

TEST(LeaderWatch, KnowsNothingWithoutEtcdAndFindsItAgain) {
  testing::EtcdServer server;
  const auto client = ClientOf(server.endpoint());
  const ElectionState first = Campaign(client, "/p", "first", absl::Seconds(600)).value();
  LeaderWatch watch(client, "/p");
  EXPECT_TRUE(Becomes(watch, "first"));
  server.Stop();
  EXPECT_TRUE(Becomes(watch, std::nullopt));
  server.Start();
  EXPECT_TRUE(Becomes(watch, "first"));
}

// Answers as a member of etcd does, and says what it was asked.
class Member : public etcdserverpb::KV::Service, public etcdserverpb::Watch::Service {
 public:
  using Stream = grpc::ServerReaderWriter<etcdserverpb::WatchResponse, etcdserverpb::WatchRequest>;

  // `watched`: what becomes of the watch that comes as the first, second, and so on, from 1.
  explicit Member(std::function<void(int, Stream*)> watched) : watched_(std::move(watched)) {}

  const std::string& endpoint() const { return server_.address(); }
  int watches() const { return watches_; }

  // The leader's name is that of the revision.
  grpc::Status Range(grpc::ServerContext* /*context*/, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override {
    response->mutable_header()->set_revision(++revision_);
    response->add_kvs()->set_key(request->key());
    response->mutable_kvs(0)->set_value(absl::StrCat("at ", revision_.load()));
    return grpc::Status::OK;
  }

  grpc::Status Watch(grpc::ServerContext* context, Stream* stream) override {
    etcdserverpb::WatchRequest request;
    EXPECT_TRUE(stream->Read(&request));
    EXPECT_EQ(request.create_request().key(), "/p/leader");
    EXPECT_EQ(request.create_request().start_revision(), revision_ + 1);
    EXPECT_EQ(context->client_metadata().count("hasleader"), 1u);
    const int watch = ++watches_;
    stream->Write({});
    watched_(watch, stream);
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  }

 private:
  const std::function<void(int, Stream*)> watched_;
  std::atomic<int64_t> revision_ = 0;
  std::atomic<int> watches_ = 0;
  testing::LoopbackServer server_{static_cast<etcdserverpb::KV::Service*>(this),
                                  static_cast<etcdserverpb::Watch::Service*>(this)};
};

TEST(LeaderWatch, ReadsAnewWhenItsWatchIsCancelled) {
  Member member([](int watch, Member::Stream* stream) {
    if (watch > 1) return;
    etcdserverpb::WatchResponse compacted;
    compacted.set_canceled(true);
    compacted.set_cancel_reason("mvcc: required revision has been compacted");
    stream->Write(compacted);
  });
  LeaderWatch watch(ClientOf(member.endpoint()), "/p", kPatience);
  EXPECT_TRUE(Becomes(watch, "at 2"));
  EXPECT_EQ(member.watches(), 2);
}

TEST(LeaderWatch, LeavesAMemberThatDoesNotSayThatItIsThere) {
  Member member([](int watch, Member::Stream* stream) {
    etcdserverpb::WatchRequest request;
    while (watch > 1 && stream->Read(&request)) stream->Write({});
  });
  LeaderWatch watch(ClientOf(member.endpoint()), "/p", absl::Milliseconds(300));
  EXPECT_TRUE(Becomes(watch, "at 1"));
  EXPECT_TRUE(Becomes(watch, "at 2"));
}

TEST(LeaderWatch, AsksWhetherAQuietMemberIsThere) {
  std::atomic<int> asked = 0;
  Member member([&](int /*watch*/, Member::Stream* stream) {
    etcdserverpb::WatchRequest request;
    while (stream->Read(&request)) {
      EXPECT_TRUE(request.has_progress_request());
      stream->Write({});
      ++asked;
    }
  });
  LeaderWatch watch(ClientOf(member.endpoint()), "/p", absl::Milliseconds(300));
  EXPECT_TRUE(Becomes(watch, "at 1"));
  const absl::Time deadline = absl::Now() + kPatience;
  while (asked < 3 && absl::Now() < deadline) watch.AwaitChange(absl::Milliseconds(10));
  EXPECT_GE(asked, 3);
}

}  // namespace
}  // namespace stagewright
