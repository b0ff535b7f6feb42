#include "worker_daemon/daemon/graphs/named_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Graph(const std::string& name) {
  v1::Graph graph;
  graph.set_name(name);
  return graph.SerializeAsString();
}

v1::Prepare Named(const std::string& job, int64_t generation, const std::string& graph) {
  v1::Prepare message;
  message.set_job(job);
  message.set_generation(generation);
  message.mutable_spec()->set_steps(3);
  message.set_graph_sha256(ContentHash(Graph(graph)));
  return message;
}

v1::NeededGraph Answer(const std::string& graph) {
  v1::NeededGraph answer;
  answer.set_graph_sha256(ContentHash(Graph(graph)));
  answer.set_graph(Graph(graph));
  return answer;
}

class NamedGraphsTest : public ::testing::Test {
 protected:
  std::vector<v1::ConnectRequest> said_;
  NamedGraphs graphs_{[this](v1::ConnectRequest message) { said_.push_back(std::move(message)); }};
};

TEST_F(NamedGraphsTest, AMessageWithItsGraphIsComplete) {
  v1::Prepare message = Named("jobs/1", 1, "net");
  message.clear_graph_sha256();
  message.mutable_spec()->mutable_graph()->set_name("net");
  ASSERT_TRUE(graphs_.Complete(message).has_value());
  EXPECT_THAT(said_, SizeIs(0));
}

TEST_F(NamedGraphsTest, AGraphIsAskedForOnce) {
  EXPECT_FALSE(graphs_.Complete(Named("jobs/1", 1, "net")).has_value());
  ASSERT_THAT(said_, SizeIs(1));
  EXPECT_EQ(said_[0].graph_needed().job(), "jobs/1");
  EXPECT_EQ(said_[0].graph_needed().generation(), 1);
  EXPECT_EQ(said_[0].graph_needed().graph_sha256(), ContentHash(Graph("net")));
  EXPECT_EQ(graphs_.Waiting("jobs/1"), 1);
  const std::vector<v1::Prepare> complete = graphs_.Take(Answer("net"));
  ASSERT_THAT(complete, SizeIs(1));
  EXPECT_EQ(complete[0].spec().graph().name(), "net");
  EXPECT_EQ(complete[0].spec().steps(), 3);
  EXPECT_EQ(graphs_.Waiting("jobs/1"), -1);
  // From then on it is there, for any job.
  for (const char* job : {"jobs/1", "jobs/2"}) {
    const auto again = graphs_.Complete(Named(job, 2, "net"));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->spec().graph().name(), "net");
    EXPECT_EQ(again->graph_sha256(), "");
  }
  EXPECT_THAT(said_, SizeIs(1));
}

TEST_F(NamedGraphsTest, TheNewestMessageOfAJobWaits) {
  EXPECT_FALSE(graphs_.Complete(Named("jobs/1", 1, "old")).has_value());
  EXPECT_FALSE(graphs_.Complete(Named("jobs/1", 2, "net")).has_value());
  EXPECT_THAT(graphs_.Take(Answer("old")), SizeIs(0));
  graphs_.Drop("jobs/1", 1);
  EXPECT_EQ(graphs_.Waiting("jobs/1"), 2);
  graphs_.Drop("jobs/1", 2);
  EXPECT_EQ(graphs_.Waiting("jobs/1"), -1);
  EXPECT_THAT(graphs_.Take(Answer("net")), SizeIs(0));
  EXPECT_FALSE(graphs_.Complete(Named("jobs/1", 3, "other")).has_value());
  graphs_.DropAll();
  EXPECT_THAT(graphs_.Take(Answer("other")), SizeIs(0));
}

TEST_F(NamedGraphsTest, AnotherGraphThanTheNamedOneFailsTheJob) {
  EXPECT_FALSE(graphs_.Complete(Named("jobs/1", 4, "net")).has_value());
  v1::NeededGraph wrong = Answer("net");
  wrong.set_graph(Graph("other"));
  EXPECT_THAT(graphs_.Take(wrong), SizeIs(0));
  ASSERT_THAT(said_, SizeIs(2));
  EXPECT_EQ(said_[1].failed().job(), "jobs/1");
  EXPECT_EQ(said_[1].failed().generation(), 4);
  EXPECT_EQ(said_[1].failed().code(), static_cast<int32_t>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(said_[1].failed().message(), HasSubstr("another graph than that of sha256:"));
  // It is not taken for the right one later.
  EXPECT_FALSE(graphs_.Complete(Named("jobs/1", 5, "net")).has_value());
}

}  // namespace
}  // namespace stagewright
