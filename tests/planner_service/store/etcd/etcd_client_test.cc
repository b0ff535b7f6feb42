#include "planner_service/store/etcd/etcd_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/time/clock.h"
#include "tests/planner_service/store/etcd/etcd_server.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EtcdPlace, IsRead) {
  EXPECT_TRUE(IsEtcdPlace("etcd://a:1"));
  EXPECT_FALSE(IsEtcdPlace("state.db"));
  const EtcdPlace place = ParseEtcdPlace("etcd://a:2379,10.0.0.1:2380/team/one").value();
  EXPECT_THAT(place.endpoints, ElementsAre("a:2379", "10.0.0.1:2380"));
  EXPECT_EQ(place.prefix, "/team/one");
  EXPECT_EQ(ParseEtcdPlace("etcd://a:1")->prefix, "/");
}

TEST(EtcdPlace, WhatIsWrongIsQuoted) {
  for (const char* text : {"state.db", "etcd://", "etcd://a", "etcd://a:0", "etcd://a:x",
                           "etcd://a:1,", "etcd://:1", "etcd://a:70000/x"}) {
    const absl::Status status = ParseEtcdPlace(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST(EtcdPlace, ErrorsDoNotRepeatAPassword) {
  for (const char* text : {"etcd://jane:secret@a:1/x", "etcd://b:1,jane:secret@a:x"}) {
    const absl::Status status = ParseEtcdPlace(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no password"));
    EXPECT_EQ(status.message().find("secret"), absl::string_view::npos);
  }
}

TEST(EtcdClient, AsksTheMembersInTurn) {
  testing::EtcdServer server;
  EtcdClient client({{"127.0.0.1:1", server.endpoint()}, "/"}, absl::Seconds(60));
  etcdserverpb::PutRequest put;
  put.set_key("k");
  put.set_value("v");
  EXPECT_EQ(client.Put(put), absl::OkStatus());
  etcdserverpb::RangeRequest get;
  get.set_key("k");
  EXPECT_EQ(client.Range(get)->kvs(0).value(), "v");
}

TEST(EtcdClient, AsksAnotherMemberWhatOneThatHangsLeavesUnanswered) {
  testing::EtcdServer hangs, server;
  hangs.Freeze();
  // Long enough for a busy machine, and a test that waits for it fails.
  EtcdClient client({{hangs.endpoint(), server.endpoint()}, "/"}, absl::Seconds(60));
  const absl::Time begin = absl::Now();
  etcdserverpb::RangeRequest get;
  get.set_key("k");
  EXPECT_EQ(client.Range(get).status(), absl::OkStatus());
  // Whatever comes then goes to the one that answers.
  etcdserverpb::PutRequest put;
  put.set_key("k");
  EXPECT_EQ(client.Put(put), absl::OkStatus());
  EXPECT_EQ(client.Range(get)->kvs_size(), 1);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(59));
}

TEST(EtcdClient, WritesAreAskedOfOneMemberOnly) {
  testing::EtcdServer hangs, server;
  hangs.Freeze();
  EtcdClient client({{hangs.endpoint(), server.endpoint()}, "/"}, absl::Seconds(1));
  etcdserverpb::PutRequest put;
  put.set_key("k");
  EXPECT_EQ(client.Put(put).code(), absl::StatusCode::kDeadlineExceeded);
  EtcdClient other({{server.endpoint()}, "/"}, absl::Seconds(60));
  etcdserverpb::RangeRequest get;
  get.set_key("k");
  EXPECT_EQ(other.Range(get)->kvs_size(), 0);
}

TEST(EtcdClient, SaysThatNoMemberAnswersInTime) {
  testing::EtcdServer hangs;
  hangs.Freeze();
  EtcdClient client({{hangs.endpoint(), "127.0.0.1:1"}, "/"}, absl::Seconds(1));
  EXPECT_EQ(client.Range({}).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(EtcdClient, SaysWhichMemberDoesNotAnswer) {
  EtcdClient client({{"127.0.0.1:1"}, "/"});
  const absl::Status status = client.Range({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1"));
}

TEST(EtcdClient, AsksNoProxy) {
  testing::EtcdServer server;
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  EtcdClient client({{server.endpoint()}, "/"}, absl::Seconds(60));
  etcdserverpb::RangeRequest get;
  get.set_key("k");
  EXPECT_EQ(client.Range(get).status(), absl::OkStatus());
  unsetenv("http_proxy");
}

TEST(EtcdClient, KeepsLeases) {
  testing::EtcdServer server;
  EtcdClient client({{server.endpoint()}, "/"}, absl::Seconds(60));
  const int64_t lease = client.GrantLease(absl::Seconds(600))->id;
  EXPECT_EQ(client.KeepLease(lease), absl::OkStatus());
  EXPECT_EQ(client.RevokeLease(lease), absl::OkStatus());
  EXPECT_EQ(client.KeepLease(lease).code(), absl::StatusCode::kNotFound);
}

// Whoever counts on parts of a second must not be the last to know that the lease is over.
TEST(EtcdClient, LeasesLastAtLeastAsLongAsAsked) {
  testing::EtcdServer server;
  EtcdClient client({{server.endpoint()}, "/"}, absl::Seconds(60));
  EXPECT_EQ(client.GrantLease(absl::Milliseconds(8900))->ttl, absl::Seconds(9));
  EXPECT_EQ(client.GrantLease(absl::Seconds(8))->ttl, absl::Seconds(8));
}

}  // namespace
}  // namespace stagewright
