#include "planner_service/election/relay.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "planner_service/access/relayed_caller.h"
#include "planner_service/election/follower.h"
#include "stagewright/v1/job_service.grpc.pb.h"
#include "stagewright/v1/worker_service.grpc.pb.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kQuiet[] = "jobs/1";  // Changes once, and never ends.

// Answers as the leader would, so that it shows what came through.
class LeaderJobs : public v1::JobService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override {
    const auto& metadata = context->client_metadata();
    const auto who = metadata.find("authorization");
    Hear(metadata);
    // What a binary key has may be any bytes.
    context->AddTrailingMetadata("echo-bin", std::string("\0\xff\n", 3));
    if (who == metadata.end())
      return {grpc::StatusCode::NOT_FOUND, "no such job", std::string("details\0.", 9)};
    context->AddTrailingMetadata("echo", std::string(who->second.data(), who->second.size()));
    response->mutable_job()->set_name(request->name());
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    v1::WatchJobResponse update;
    if (request->name() == kQuiet) {
      writer->Write(update);
      while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(20));
      quiet_ended_ = true;
      return grpc::Status::OK;
    }
    for (int64_t version = 1; request->after_version() == 0 || version < request->after_version();
         ++version) {
      update.mutable_job()->set_version(version);
      if (context->IsCancelled() || !writer->Write(update)) break;
    }
    if (context->IsCancelled()) cancelled_.Notify();
    return grpc::Status::OK;
  }
  absl::Notification cancelled_;
  std::atomic<bool> quiet_ended_ = false;
  // What planners said of the last caller.
  struct Heard {
    int calls = 0;
    size_t uris = 0, odd = 0, credentials = 0;
    std::vector<std::string> peers;
  };
  Heard heard() {
    absl::MutexLock lock(&mutex_);
    return heard_;
  }

 private:
  // Calls come side by side.
  void Hear(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
    Heard heard;
    heard.uris = metadata.count(kCallerUri);
    heard.odd = metadata.count("odd") + metadata.count("odd-bin");
    heard.credentials = metadata.count("authorization");
    const auto [first, last] = metadata.equal_range(kCallerPeer);
    for (auto it = first; it != last; ++it)
      heard.peers.emplace_back(it->second.data(), it->second.size());
    absl::MutexLock lock(&mutex_);
    heard.calls = heard_.calls + 1;
    heard_ = std::move(heard);
  }

  absl::Mutex mutex_;
  Heard heard_ ABSL_GUARDED_BY(mutex_);
};

class LeaderWorkers : public v1::WorkerService::Service {
 public:
  grpc::Status Connect(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream) override {
    v1::ConnectRequest request;
    while (stream->Read(&request)) {
      if (request.register_().worker() == "leave")
        return {grpc::StatusCode::UNAVAILABLE, "register again"};
      v1::ConnectResponse response;
      response.mutable_abort()->set_reason(request.register_().worker());
      stream->Write(response);
    }
    return grpc::Status::OK;
  }
};

int Connect(const std::string& address) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  return client;
}

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    // What proxies and other servers commonly allow on one connection.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
    // As a planner's: followers ping every 5 s.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 2000);
    builder.RegisterService(&leader_jobs_);
    builder.RegisterService(&leader_workers_);
    leader_ = builder.BuildAndStart();
    leader_address_ = absl::StrCat("127.0.0.1:", port);
    follower_->Follow(leader_address_);
  }
  ~RelayTest() override {
    follower_.reset();
    leader_->Shutdown(std::chrono::system_clock::now());
  }

  v1::JobService::Stub Jobs() const {
    return v1::JobService::Stub(
        grpc::CreateChannel(follower_->address(), grpc::InsecureChannelCredentials()));
  }
  v1::WorkerService::Stub Workers() const {
    return v1::WorkerService::Stub(
        grpc::CreateChannel(follower_->address(), grpc::InsecureChannelCredentials()));
  }
  grpc::Status Get(grpc::ClientContext& context, v1::GetJobResponse& response) const {
    v1::GetJobRequest request;
    request.set_name("jobs/7");
    return Jobs().GetJob(&context, request, &response);
  }

  LeaderJobs leader_jobs_;
  LeaderWorkers leader_workers_;
  std::unique_ptr<grpc::Server> leader_;
  std::string leader_address_;
  std::unique_ptr<Follower> follower_ = Follower::Start({"127.0.0.1:0"}).value();
};

TEST_F(RelayTest, CallsComeBackWithTheirMetadata) {
  grpc::ClientContext context;
  context.AddMetadata("authorization", "somebody");
  v1::GetJobResponse response;
  ASSERT_TRUE(Get(context, response).ok());
  EXPECT_EQ(response.job().name(), "jobs/7");
  EXPECT_EQ(context.GetServerTrailingMetadata().find("echo")->second, "somebody");
  EXPECT_EQ(context.GetServerTrailingMetadata().find("echo-bin")->second,
            grpc::string_ref("\0\xff\n", 3));
}

TEST_F(RelayTest, StatusesComeBackWithTheirDetails) {
  grpc::ClientContext context;
  v1::GetJobResponse response;
  const grpc::Status status = Get(context, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no such job");
  EXPECT_EQ(status.error_details(), std::string("details\0.", 9));
}

TEST_F(RelayTest, UnknownMethodsAreTheLeadersToRefuse) {
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  EXPECT_EQ(Jobs().SubmitJob(&context, {}, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(RelayTest, StreamsComeDownWhole) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_after_version(2001);
  const auto reader = Jobs().WatchJob(&context, request);
  v1::WatchJobResponse update;
  int64_t seen = 0;
  while (reader->Read(&update)) EXPECT_EQ(update.job().version(), ++seen);
  EXPECT_EQ(seen, 2000);
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(RelayTest, ACancelledCallIsCancelledThere) {
  grpc::ClientContext context;
  const auto reader = Jobs().WatchJob(&context, {});
  v1::WatchJobResponse update;
  ASSERT_TRUE(reader->Read(&update));
  context.TryCancel();
  while (reader->Read(&update)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(leader_jobs_.cancelled_.WaitForNotificationWithTimeout(absl::Seconds(60)));
}

TEST_F(RelayTest, OpenWatchesKeepNoCallWaiting) {
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> reader;
  };
  // One for all: a watch that waits for room must not get that of one whose time is over.
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(30);
  std::vector<std::unique_ptr<Watch>> watches;
  auto jobs = Jobs();
  v1::WatchJobRequest request;
  request.set_name(kQuiet);
  for (int i = 0; i < 300; ++i) {
    watches.push_back(std::make_unique<Watch>());
    watches.back()->context.set_deadline(deadline);
    watches.back()->reader = jobs.WatchJob(&watches.back()->context, request);
    v1::WatchJobResponse update;
    ASSERT_TRUE(watches.back()->reader->Read(&update)) << i;
  }
  grpc::ClientContext context;
  context.AddMetadata("authorization", "somebody");
  context.set_deadline(deadline);
  v1::GetJobResponse response;
  const grpc::Status status = Get(context, response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  for (auto& watch : watches) watch->context.TryCancel();
  for (auto& watch : watches) watch->reader->Finish();
}

// What HTTP/2 says before anything else: a frame of settings, six bytes each.
TEST_F(RelayTest, AConnectionMayHaveAsManyCallsAsOneOfTheLeaders) {
  const int client = Connect(follower_->address());
  const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  ASSERT_EQ(send(client, hello.data(), hello.size(), 0), 33);
  std::string received(9, '\0');
  ASSERT_EQ(recv(client, received.data(), 9, MSG_WAITALL), 9);
  std::string settings(static_cast<uint8_t>(received[2]), '\0');
  recv(client, settings.data(), settings.size(), MSG_WAITALL);
  close(client);
  const std::string streams("\0\3\0\0\4\0", 6);  // MAX_CONCURRENT_STREAMS = 1024.
  EXPECT_THAT(settings, HasSubstr(streams));
}

// gRPC takes in values that it ends the process for when it is to send them.
TEST_F(RelayTest, HeadersThatMayNotBeSentAreLeftOut) {
  for (const char* const key : {"odd", "authorization"}) {
    const int before = leader_jobs_.heard().calls;
    const int client = Connect(follower_->address());
    const auto literal = [](absl::string_view text) {
      return absl::StrCat(std::string(1, static_cast<char>(text.size())), text);
    };
    const auto header = [&](absl::string_view name, absl::string_view value) {
      return absl::StrCat(std::string(1, '\0'), literal(name), literal(value));
    };
    const std::string headers =
        absl::StrCat(header(":method", "POST"), header(":scheme", "http"),
                     header(":path", "/stagewright.v1.JobService/GetJob"),
                     header(":authority", "planner"), header("te", "trailers"),
                     header("content-type", "application/grpc"), header(key, "a\x01\xff"));
    // Frames: length, type, flags and stream. HEADERS, and an empty message that ends the call.
    const std::string call = absl::StrCat(
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", std::string("\0\0\0\4\0\0\0\0\0\0\0", 11),
        std::string(1, static_cast<char>(headers.size())), std::string("\1\4\0\0\0\1", 6), headers,
        std::string("\0\0\5\0\1\0\0\0\1\0\0\0\0\0", 14));
    ASSERT_EQ(send(client, call.data(), call.size(), 0), static_cast<ssize_t>(call.size()));
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (leader_jobs_.heard().calls == before && absl::Now() < deadline)
      absl::SleepFor(absl::Milliseconds(5));
    close(client);
    const auto heard = leader_jobs_.heard();
    EXPECT_EQ(heard.calls, before + 1) << key;
    EXPECT_EQ(heard.odd, 0u);
    EXPECT_EQ(heard.credentials, 0u);
  }
}

TEST_F(RelayTest, OnlyCredentialsOfAllThatCallersSayArePassedOn) {
  grpc::ClientContext context;
  context.AddMetadata("authorization", "somebody");
  context.AddMetadata("odd", "fine");
  context.AddMetadata("odd-bin", "fine");
  v1::GetJobResponse response;
  ASSERT_TRUE(Get(context, response).ok());
  EXPECT_EQ(leader_jobs_.heard().odd, 0u);
  EXPECT_EQ(leader_jobs_.heard().credentials, 1u);
}

TEST_F(RelayTest, WhatPlannersSayOfCallersIsNoCallersToSay) {
  grpc::ClientContext context;
  context.AddMetadata("authorization", "somebody");
  context.AddMetadata(kCallerUri, "stagewright://operator/mallory");
  context.AddMetadata(kCallerPeer, "ipv4:10.0.0.1:1");
  v1::GetJobResponse response;
  ASSERT_TRUE(Get(context, response).ok());
  EXPECT_EQ(leader_jobs_.heard().uris, 0u);
  EXPECT_THAT(leader_jobs_.heard().peers, ElementsAre(HasSubstr("127.0.0.1")));
}

TEST_F(RelayTest, MessagesGoBothWaysUntilEitherEnds) {
  for (const bool leader_ends : {false, true}) {
    grpc::ClientContext context;
    const auto stream = Workers().Connect(&context);
    v1::ConnectRequest request;
    v1::ConnectResponse response;
    for (int i = 0; i < 100; ++i) {
      request.mutable_register_()->set_worker(absl::StrCat("w", i));
      ASSERT_TRUE(stream->Write(request));
      ASSERT_TRUE(stream->Read(&response));
      EXPECT_EQ(response.abort().reason(), absl::StrCat("w", i));
    }
    if (leader_ends) {
      request.mutable_register_()->set_worker("leave");
      ASSERT_TRUE(stream->Write(request));
    } else {
      stream->WritesDone();
    }
    EXPECT_FALSE(stream->Read(&response));
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(),
              leader_ends ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::OK);
  }
}

TEST_F(RelayTest, ManyCallsAtOnceAndALeaderThatDies) {
  std::atomic<int> ok = 0, away = 0, other = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      while (away == 0) {
        grpc::ClientContext context;
        context.AddMetadata("authorization", "somebody");
        v1::GetJobResponse response;
        const grpc::Status status = Get(context, response);
        ++(status.ok() ? ok : status.error_code() == grpc::StatusCode::UNAVAILABLE ? away : other);
      }
    });
  }
  while (ok < 200 && other == 0) absl::SleepFor(absl::Milliseconds(1));
  leader_->Shutdown(std::chrono::system_clock::now());
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(other, 0);
  EXPECT_GT(away, 0);
}

TEST_F(RelayTest, CallsOfAFormerLeaderEndWhenAnotherLeads) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::WatchJobRequest request;
  request.set_name(kQuiet);
  const auto reader = Jobs().WatchJob(&context, request);
  v1::WatchJobResponse update;
  ASSERT_TRUE(reader->Read(&update));
  // It may still lead.
  follower_->Follow("");
  follower_->Follow(leader_address_);
  grpc::ClientContext asking;
  asking.AddMetadata("authorization", "somebody");
  v1::GetJobResponse response;
  ASSERT_TRUE(Get(asking, response).ok());
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_FALSE(leader_jobs_.quiet_ended_);

  const auto second = Follower::Start({"127.0.0.1:0"}).value();
  follower_->Follow(second->address());
  EXPECT_FALSE(reader->Read(&update));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A relay alone, before the leader's server.
class RelayOfEpochs : public RelayTest {
 protected:
  ~RelayOfEpochs() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  void Serve(Relay::Target target) {
    relay_ = std::make_unique<Relay>(std::move(target));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(relay_.get());
    server_ = builder.BuildAndStart();
    client_ =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  }

  const std::shared_ptr<grpc::Channel> to_leader_ =
      grpc::CreateChannel(leader_address_, grpc::InsecureChannelCredentials());
  std::unique_ptr<Relay> relay_;  // Outlives the server.
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> client_;
};

TEST_F(RelayOfEpochs, CallsThatWentToTheNewLeaderGoOn) {
  std::atomic<int64_t> epoch = 1;
  Serve([&] { return Relay::Leader{to_leader_, epoch}; });
  v1::WorkerService::Stub workers(client_);
  grpc::ClientContext old_context, new_context;
  v1::ConnectRequest request;
  v1::ConnectResponse response;
  const auto old_call = workers.Connect(&old_context);
  ASSERT_TRUE(old_call->Write(request) && old_call->Read(&response));
  epoch = 2;
  const auto new_call = workers.Connect(&new_context);
  ASSERT_TRUE(new_call->Write(request) && new_call->Read(&response));
  relay_->EndCallsBefore(2);
  EXPECT_FALSE(old_call->Read(&response));
  EXPECT_EQ(old_call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(new_call->Write(request) && new_call->Read(&response));
  new_call->WritesDone();
  EXPECT_TRUE(new_call->Finish().ok());
}

TEST_F(RelayOfEpochs, NoCallGoesToTheLeaderBefore) {
  int asked = 0;
  Serve([&] {
    if (++asked > 1) return Relay::Leader{to_leader_, 2};
    relay_->EndCallsBefore(2);  // Between the answer and the call.
    return Relay::Leader{grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials()), 1};
  });
  grpc::ClientContext context;
  context.AddMetadata("authorization", "somebody");
  v1::GetJobResponse response;
  EXPECT_TRUE(v1::JobService::Stub(client_).GetJob(&context, {}, &response).ok());
  EXPECT_EQ(asked, 2);
}

TEST_F(RelayTest, LeadersAreReachedWithoutAProxy) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  v1::JobService::Stub jobs(grpc::CreateCustomChannel(
      follower_->address(), grpc::InsecureChannelCredentials(), arguments));
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  grpc::ClientContext context;
  context.AddMetadata("authorization", "somebody");
  v1::GetJobResponse response;
  EXPECT_TRUE(jobs.GetJob(&context, {}, &response).ok());
  unsetenv("http_proxy");
}

TEST_F(RelayTest, WithoutALeaderCallsAreUnavailable) {
  follower_->Follow("");
  grpc::ClientContext context;
  v1::GetJobResponse response;
  const grpc::Status status = Get(context, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("no planner leads"));
  EXPECT_NE(status.error_details(), "") << "as a planner that answers so";
}

TEST_F(RelayTest, AFollowerAnswersWhereTheLeaderIsNotReached) {
  follower_->Follow("127.0.0.1:1");
  grpc::ClientContext context;
  v1::GetJobResponse response;
  const grpc::Status status = Get(context, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("the planner that leads: "));
  EXPECT_NE(status.error_details(), "") << "as a planner that answers so";
}

TEST_F(RelayTest, FollowersSayNothingOfServicesByThemselves) {
  follower_->Follow("");
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::ByteBuffer answer;
  grpc::Status status;
  const auto channel =
      grpc::CreateChannel(follower_->address(), grpc::InsecureChannelCredentials());
  const auto call = grpc::GenericStub(channel).PrepareUnaryCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", answer, &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RelayTest, CallsAreNotPassedOnTwice) {
  const auto second = Follower::Start({"127.0.0.1:0"}).value();
  second->Follow(leader_address_);
  follower_->Follow(second->address());
  grpc::ClientContext context;
  v1::GetJobResponse response;
  const grpc::Status status = Get(context, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("does not lead any more"));
}

TEST_F(RelayTest, ATakenPortIsNamed) {
  const absl::Status status = Follower::Start({follower_->address()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(follower_->address()));
}

}  // namespace
}  // namespace stagewright
