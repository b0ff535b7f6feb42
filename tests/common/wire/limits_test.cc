#include "common/wire/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error_details.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const google::protobuf::Message& message) {
  const absl::Status status = CheckLimits(message);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  const std::string field = DetailsOf(status).field;  // What the message says of it.
  EXPECT_EQ(field, status.message().substr(0, status.message().find(':')));
  return std::string(status.message());
}

TEST(Limits, AreReachedAndNotPassed) {
  v1::SubmitJobRequest request;
  request.set_request_id(std::string(128, 'i'));
  request.mutable_spec()->set_display_name(std::string(256, 'n'));
  request.mutable_spec()->set_output_path(std::string(4096, 'p'));
  EXPECT_TRUE(CheckLimits(request).ok());
  request.set_request_id(std::string(129, 'i'));
  EXPECT_EQ(MessageOf(request), "request_id: it has 129 bytes, at most 128 are taken");
  request.clear_request_id();
  request.mutable_spec()->set_output_path(std::string(4097, 'p'));
  EXPECT_EQ(MessageOf(request), "spec.output_path: it has 4097 bytes, at most 4096 are taken");
}

TEST(Limits, HoldInsideListsAndNameTheItem) {
  v1::SubmitJobRequest request;
  for (int i = 0; i < 3; ++i) request.mutable_spec()->mutable_graph()->add_nodes()->set_name("n");
  request.mutable_spec()->mutable_graph()->mutable_nodes(2)->set_target(std::string(300, 't'));
  EXPECT_EQ(MessageOf(request),
            "spec.graph.nodes[2].target: it has 300 bytes, at most 256 are taken");
  auto* node = request.mutable_spec()->mutable_graph()->mutable_nodes(2);
  node->set_target("aten.cat.default");
  v1::ArgumentList* list = node->add_args()->mutable_list();
  list->add_items()->set_text("same\x1b[2J");
  EXPECT_EQ(MessageOf(request),
            "spec.graph.nodes[2].args[0].list.items[0].text: it has control characters");
}

TEST(Limits, TellProgramsTheField) {
  v1::SubmitJobRequest request;
  EXPECT_EQ(DetailsOf(CheckLimits(request)).field, "");
  request.mutable_spec()->mutable_graph()->add_nodes()->set_target("a: b\x1b");
  EXPECT_EQ(DetailsOf(CheckLimits(request)).field, "spec.graph.nodes[0].target");
}

TEST(Limits, HoldForListsOfNumbersToo) {
  v1::SubmitJobRequest request;
  auto* parameter = request.mutable_spec()->mutable_graph()->add_parameters();
  for (int i = 0; i < 65; ++i) parameter->add_shape(1);
  EXPECT_EQ(MessageOf(request),
            "spec.graph.parameters[0].shape: there are 65, at most 64 are taken");
}

TEST(Limits, LeaveConstantsAsLongAsTheyAre) {
  v1::SubmitJobRequest request;
  request.mutable_spec()->mutable_graph()->add_parameters()->set_data(std::string(1 << 20, '\0'));
  EXPECT_TRUE(CheckLimits(request).ok());
}

TEST(Limits, KeepControlCharactersOutOfNames) {
  for (const char* name : {"a\nb", "\t", "a\x7f", "\x1b[31m",
                           "\xc2\x9b"
                           "31m"}) {
    v1::ConnectRequest request;
    request.mutable_register_()->set_worker(name);
    EXPECT_THAT(MessageOf(request), HasSubstr("register.worker: it has control characters"));
  }
  v1::ConnectRequest request;
  request.mutable_register_()->set_worker("k\xc3\xb6ln \xe2\x80\x93 \xc2\xa0");
  EXPECT_TRUE(CheckLimits(request).ok());
}

TEST(Limits, LetWorkersTellPeopleInLines) {
  v1::ConnectRequest request;
  request.mutable_failed()->set_message("first line\n\tsecond line");
  EXPECT_TRUE(CheckLimits(request).ok());
  request.mutable_failed()->set_message("\x1b[2J");
  EXPECT_FALSE(CheckLimits(request).ok());
  request.mutable_failed()->set_message(std::string((64 << 10) + 1, 'x'));
  EXPECT_FALSE(CheckLimits(request).ok());
}

}  // namespace
}  // namespace stagewright
