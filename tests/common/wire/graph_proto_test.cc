#include "common/wire/graph_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

v1::Graph OfLength(int64_t length) {
  GraphData data;
  data.name = "lengths";
  data.inputs = {{"x", {DType::kFloat32, {{1, 0}, {0, length}}}, InputRole::kFeature}};
  Node node;
  node.name = "mean";
  node.target = "aten.mean.default";
  node.args = {{InputId(0)}};
  node.outputs = {{DType::kFloat32, {}}};
  data.nodes = {node};
  data.loss = ValueRef{NodeId(0), 0};
  return ToProto(*Graph::Create(data));
}

absl::StatusOr<std::vector<Graph>> LengthsOf(const v1::Graph& proto) {
  return LengthsFromProto(proto, *FromProto(proto));
}

TEST(GraphProto, LengthsAreGraphsOfTheirOwn) {
  v1::Graph proto = OfLength(8);
  EXPECT_TRUE(LengthsOf(proto)->empty());
  *proto.add_lengths() = OfLength(5);
  *proto.add_lengths() = OfLength(3);
  const auto lengths = LengthsOf(proto);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  ASSERT_EQ(lengths->size(), 2u);
  EXPECT_EQ(ToProto((*lengths)[1]).SerializeAsString(), proto.lengths(1).SerializeAsString());
}

TEST(GraphProto, LengthsThatAreNoneAreRefused) {
  const auto message = [](const v1::Graph& length) {
    v1::Graph proto = OfLength(8);
    *proto.add_lengths() = OfLength(5);
    *proto.add_lengths() = length;
    const absl::Status status = LengthsOf(proto).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message(OfLength(5)),
              HasSubstr("lengths[1]: another graph takes the same samples, x[5]"));
  EXPECT_THAT(message(OfLength(8)),
              HasSubstr("lengths[1]: another graph takes the same samples, x[8]"));
  v1::Graph other = OfLength(3);
  other.mutable_nodes(0)->set_target("aten.sum.default");
  EXPECT_THAT(message(other), HasSubstr("lengths[1]: nodes[0] \"mean\" is not that of the graph"));
  v1::Graph nested = OfLength(3);
  *nested.add_lengths() = OfLength(2);
  EXPECT_THAT(message(nested), HasSubstr("lengths[1].lengths: there may be none"));
  v1::Graph broken = OfLength(3);
  broken.clear_nodes();
  EXPECT_THAT(message(broken), HasSubstr("lengths[1]"));
  v1::Graph many = OfLength(300);
  for (int64_t length = 1; length < 299; ++length) *many.add_lengths() = OfLength(length);
  EXPECT_THAT(std::string(LengthsOf(many).status().message()), HasSubstr("at most 256 are taken"));
}

TEST(GraphProto, TheNamesOfAGraphAreAllThatIsPrintedOfIt) {
  v1::Graph proto = OfLength(8);
  proto.mutable_nodes(0)->set_module("head");
  v1::Graph names;
  names.set_name("lengths");
  names.add_nodes()->set_name("mean");
  names.mutable_nodes(0)->set_module("head");
  EXPECT_EQ(NamesOf(proto).SerializeAsString(), names.SerializeAsString());
}

}  // namespace
}  // namespace stagewright
