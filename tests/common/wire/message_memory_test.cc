#include "common/wire/message_memory.h"

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "stagewright/v1/job_service.pb.h"

namespace stagewright {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

size_t MemoryOf(const google::protobuf::Message& message) {
  return MessageMemory(message.GetDescriptor(), message.SerializeAsString(), kNoLimit);
}

google::protobuf::UnknownFieldSet& UnknownFieldsOf(google::protobuf::Message& message) {
  return *message.GetReflection()->MutableUnknownFields(&message);
}

v1::SubmitJobRequest WithNodes(int count, const std::string& name) {
  v1::SubmitJobRequest request;
  for (int i = 0; i < count; ++i) {
    v1::Node* node = request.mutable_spec()->mutable_graph()->add_nodes();
    if (name.empty()) continue;
    node->set_name(name);
    node->add_args()->mutable_value()->set_node(i);
    node->add_outputs()->add_shape()->set_offset(4);
  }
  return request;
}

TEST(MessageMemoryTest, IsAboutWhatTheMessageTakes) {
  for (const char* name : {"", "layer1.0.conv1.weight of a name that is kept elsewhere"}) {
    const v1::SubmitJobRequest request = WithNodes(10000, name);
    const auto real = static_cast<double>(request.SpaceUsedLong());
    EXPECT_GT(static_cast<double>(MemoryOf(request)), 0.9 * real) << name;
    EXPECT_LT(static_cast<double>(MemoryOf(request)), 2 * real) << name;
  }
}

TEST(MessageMemoryTest, CountsWhatTheTypeDoesNotHave) {
  v1::GetJobRequest request;
  for (int i = 0; i < 10000; ++i) UnknownFieldsOf(request).AddLengthDelimited(10, "");
  EXPECT_GT(MemoryOf(request), 10000 * 48);
  v1::GetJobRequest groups;
  google::protobuf::UnknownFieldSet* inner = &UnknownFieldsOf(groups);
  for (int i = 0; i < 1000; ++i) inner = inner->AddGroup(10);
  EXPECT_GT(MemoryOf(groups), 1000 * 16);
}

TEST(MessageMemoryTest, StopsWhereItIsTooMuch) {
  const v1::SubmitJobRequest request = WithNodes(100000, "");
  const size_t found = MessageMemory(request.GetDescriptor(), request.SerializeAsString(), 1 << 20);
  EXPECT_GT(found, size_t{1} << 20);
  EXPECT_LT(found, size_t{2} << 20);
}

TEST(MessageMemoryTest, WhatIsNoMessageEndsIt) {
  const auto* type = v1::SubmitJobRequest::descriptor();
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), std::string("\x0a\xff\xff\xff\xff\x07"),
        std::string("\x0f\x0e\x00", 3), std::string(1000, '\x0b')})
    EXPECT_LT(MessageMemory(type, bytes, kNoLimit), size_t{1} << 20);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "\x0a\x80\x80\x80\x01";
  EXPECT_LT(MessageMemory(type, deep, kNoLimit), size_t{1} << 20);
}

}  // namespace
}  // namespace stagewright
