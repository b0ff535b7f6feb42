#include "planner_service/service/door.h"

#include <gmock/gmock.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "planner_service/service/server.h"
#include "tests/planner_service/store/temporary_folder.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kSubmit[] = "/stagewright.v1.JobService/SubmitJob";

// A door that asks for tokens, before a server that offers nothing.
class DoorTest : public ::testing::Test {
 protected:
  ~DoorTest() override {
    if (server_ != nullptr) server_->Shutdown();
  }

  void Open() {
    DoorOptions options;
    options.token_file = folder_.path() / "tokens";
    options.audit_log = log_;
    std::ofstream(options.token_file) << "viewer-viewer-viewer viewer vera\n";
    door_ = Door::Open("127.0.0.1:0", "", options).value();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
    builder.AddListeningPort("127.0.0.1:0", door_->credentials(), &port);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::experimental::LocalCredentials(LOCAL_TCP));
  }

  grpc::Status Call(const std::string& method, const std::string& token = "") {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    grpc::CompletionQueue queue;
    grpc::ByteBuffer answer;
    grpc::Status status;
    const auto call =
        grpc::GenericStub(channel_).PrepareUnaryCall(&context, method, grpc::ByteBuffer(), &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

  std::vector<std::string> Lines() const {
    std::ifstream file(log_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const testing::TemporaryFolder folder_;
  const std::filesystem::path log_ = folder_.path() / "audit.jsonl";
  std::unique_ptr<Door> door_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(DoorTest, WhatCallersMakeUpIsNotInTheAuditLog) {
  Open();
  const std::string path = "/" + std::string(12 << 10, '\x01');
  for (const char* const token : {"", "viewer-viewer-viewer"}) {
    const grpc::Status status = Call(path, token);
    EXPECT_EQ(status.error_code(), *token == '\0' ? grpc::StatusCode::UNAUTHENTICATED
                                                  : grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_LT(status.error_message().size(), 256u);
  }
  ASSERT_THAT(Lines(), SizeIs(2));
  for (const std::string& line : Lines()) {
    EXPECT_LT(line.size(), 1024u);
    EXPECT_EQ(nlohmann::json::parse(line)["call"], "unknown method");
  }
}

TEST_F(DoorTest, AnAuditLogThatCouldNotBeWrittenIsWrittenAgain) {
  std::filesystem::create_symlink("/dev/full", log_);
  Open();
  // What the file lacks is there whatever little else is.
  SetUpLog({"", LogFormat::kText, LogLevel::kError});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Call(kSubmit).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Call(kSubmit).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const std::string logged = ::testing::internal::GetCapturedStderr();
  SetUpLog({});
  EXPECT_EQ(door_->audit_failures(), 2);
  // The outage once, and each line that the file lacks.
  const size_t outage = logged.find("No space left");
  ASSERT_NE(outage, std::string::npos) << logged;
  EXPECT_EQ(logged.find("No space left", outage + 1), std::string::npos) << logged;
  const size_t line = logged.find("call=" + std::string(kSubmit));
  ASSERT_NE(line, std::string::npos) << logged;
  EXPECT_NE(logged.find("call=" + std::string(kSubmit), line + 1), std::string::npos) << logged;

  std::filesystem::remove(log_);
  EXPECT_EQ(Call(kSubmit).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  ASSERT_THAT(Lines(), SizeIs(1));
  EXPECT_THAT(Lines()[0], HasSubstr(kSubmit));
  EXPECT_EQ(door_->audit_failures(), 2);
}

}  // namespace
}  // namespace stagewright
