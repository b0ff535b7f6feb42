#include "common/wire/graph_file.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "common/wire/graph_proto.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

class GraphFileTest : public ::testing::Test {
 protected:
  GraphFileTest()
      : path_((std::filesystem::temp_directory_path() /
               ("stagewright_graph_" + std::to_string(getpid()) + ".swg"))
                  .string()) {}
  ~GraphFileTest() override { std::filesystem::remove(path_); }

  std::string Bytes() const {
    std::ifstream in(path_, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void Put(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  // A file whose checksum is right, whatever it holds.
  void PutPayload(const std::string& payload) const {
    std::string bytes = "SWGRAPH1";
    const uint64_t size = payload.size();
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(payload.data()), payload.size()));
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(size >> (8 * i)));
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(crc >> (8 * i)));
    Put(bytes + payload);
  }
  void ExpectRefused(absl::StatusCode code, const std::string& message) const {
    const absl::Status status = ReadGraphFile(path_).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  Graph Random(uint64_t seed) const {
    testing::Rng rng(seed);
    return testing::RandomGraph(rng, static_cast<int32_t>(3 + seed % 20));
  }

  const std::string path_;
};

TEST_F(GraphFileTest, RandomGraphsRoundTrip) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = Random(seed);
    Put(GraphFileBytes(graph));
    const auto again = ReadGraphFile(path_);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ToProto(*again).SerializeAsString(), ToProto(graph).SerializeAsString());
  }
}

// Layouts, totals, states, bounds and constants, each different from what it is by default.
TEST_F(GraphFileTest, WhatTrainingNeedsRoundTrips) {
  GraphData data = Random(5).data();
  data.parameters.push_back({"count", DType::kInt64, {}, false, true, {}});
  data.parameters.push_back({"weights", DType::kFloat32, {2}, false, true, {}, "01\xff\n\0 67"});
  data.parameters.back().data->resize(8, '\0');
  Node total;
  total.name = "total";
  total.target = "aten.sum.default";
  total.args = {{InputId(0)}};
  total.outputs = {testing::Fixed({})};
  data.totals = {{total}, {{NodeId(0), 0}}};
  Node counted = total;
  counted.name = "counted";
  counted.args = {{ParameterId(static_cast<int64_t>(data.parameters.size()) - 2)}, {TotalId(0)}};
  counted.outputs = {testing::Fixed({}, DType::kInt64)};
  data.nodes.push_back(counted);
  const NodeId last(static_cast<int64_t>(data.nodes.size()) - 1);
  data.state_updates = {{ParameterId(static_cast<int64_t>(data.parameters.size()) - 2), {last, 0}}};
  TensorMeta laid{DType::kFloat32, {{0, 2}, {6, 0}}, SampleLayout{1, 3}};
  TensorMeta mixed{DType::kFloat32, {{1, 0}, {1, 0}}};
  mixed.mixed = true;
  Node more = total;
  more.name = "more";
  more.outputs = {laid, mixed};
  data.nodes.push_back(more);
  data.samples = {3, 77};
  const auto graph = Graph::Create(data);
  ASSERT_TRUE(graph.ok()) << graph.status();
  Put(GraphFileBytes(*graph));
  const auto again = ReadGraphFile(path_);
  ASSERT_TRUE(again.ok()) << again.status();
  const GraphData& read = again->data();
  EXPECT_EQ(read.nodes.back().outputs, data.nodes.back().outputs);
  EXPECT_EQ(read.nodes[last.index()].args, counted.args);
  ASSERT_EQ(read.totals.nodes.size(), 1u);
  EXPECT_EQ(read.totals.nodes[0].name, "total");
  EXPECT_EQ(read.totals.nodes[0].args, total.args);
  EXPECT_EQ(read.totals.values, data.totals.values);
  EXPECT_EQ(read.state_updates, data.state_updates);
  EXPECT_EQ(read.samples, data.samples);
  EXPECT_EQ(read.parameters.back().data, data.parameters.back().data);
  EXPECT_FALSE(read.parameters.front().data.has_value());
}

TEST_F(GraphFileTest, EveryTruncationIsNoticed) {
  Put(GraphFileBytes(Random(3)));
  const std::string whole = Bytes();
  for (size_t size = 0; size < whole.size(); size += size < 24 ? 1 : 7) {
    Put(whole.substr(0, size));
    if (size < 8) {
      ExpectRefused(absl::StatusCode::kInvalidArgument, "not a Stagewright graph file");
    } else {
      ExpectRefused(absl::StatusCode::kDataLoss, "truncated");
    }
  }
  Put(whole + "x");
  ExpectRefused(absl::StatusCode::kDataLoss, "trailing bytes");
}

TEST_F(GraphFileTest, EveryFlippedBitIsNoticed) {
  Put(GraphFileBytes(Random(4)));
  const std::string whole = Bytes();
  for (size_t at = 0; at < whole.size(); at += 5) {
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    Put(bad);
    EXPECT_FALSE(ReadGraphFile(path_).ok()) << at;
  }
  std::string bad = whole;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  Put(bad);
  ExpectRefused(absl::StatusCode::kDataLoss, "checksum");
  Put("SWGRAPH9" + whole.substr(8));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "not a Stagewright graph file");
  std::filesystem::remove(path_);
  ExpectRefused(absl::StatusCode::kNotFound, "No such file");
}

TEST_F(GraphFileTest, WrongFieldsAreNamed) {
  const v1::Graph good = ToProto(Random(5));
  const std::pair<const char*, std::function<void(v1::Graph&)>> cases[] = {
      {"inputs[0]", [](auto& g) { g.mutable_inputs(0)->mutable_meta()->set_dtype(v1::Dtype(99)); }},
      {"parameters[0]", [](auto& g) { g.mutable_parameters(0)->set_dtype(v1::Dtype(-3)); }},
      {"nodes[0]", [](auto& g) { g.mutable_nodes(0)->add_args(); }},
      {"nodes[0]", [](auto& g) { g.mutable_nodes(0)->add_args()->set_parameter(1 << 30); }},
      {"nodes[0]", [](auto& g) { g.mutable_nodes(0)->add_args()->set_input(-7); }},
      {"nodes[0]",
       [](auto& g) { g.mutable_nodes(0)->add_args()->mutable_value()->set_node(1 << 30); }},
      {"nodes[0]", [](auto& g) { g.mutable_nodes(0)->add_args()->set_total(0); }},
      {"totals.nodes[0]", [](auto& g) { g.mutable_totals()->add_nodes()->set_name("t"); }},
      {"totals.values[0]", [](auto& g) { g.mutable_totals()->add_values()->set_node(-2); }},
      {"state_updates[0]", [](auto& g) { g.add_state_updates()->set_parameter(-1); }},
      {"samples", [](auto& g) { g.mutable_samples()->set_most(-1); }},
      {"outputs[0].samples",
       [](auto& g) { g.mutable_nodes(0)->mutable_outputs(0)->mutable_layout()->set_dim(-1); }},
      {"loss", [](auto& g) { g.mutable_loss()->set_node(-5); }},
      {"nest too deep",
       [](auto& g) {
         v1::Argument* argument = g.mutable_nodes(0)->add_args();
         for (int i = 0; i < 30; ++i) argument = argument->mutable_list()->add_items();
         argument->set_none(true);
       }},
  };
  for (const auto& [message, spoil] : cases) {
    v1::Graph bad = good;
    spoil(bad);
    PutPayload(bad.SerializeAsString());
    ExpectRefused(absl::StatusCode::kInvalidArgument, message);
  }
}

// Files whose checksum is right but whose payload is damaged at random: refused or a graph, never a
// crash.
TEST_F(GraphFileTest, DamagedPayloadsNeverCrash) {
  testing::Rng rng(7);
  const std::string payload = ToProto(Random(11)).SerializeAsString();
  int refused = 0;
  const google::protobuf::LogSilencer silence;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = payload;
    for (int64_t n = testing::Uniform(rng, 1, 6); n > 0; --n) {
      const auto at =
          static_cast<size_t>(testing::Uniform(rng, 0, static_cast<int64_t>(bad.size()) - 1));
      switch (testing::Uniform(rng, 0, 2)) {
        case 0:
          bad[at] = static_cast<char>(testing::Uniform(rng, 0, 255));
          break;
        case 1:
          bad.erase(at, 1);
          break;
        default:
          bad.insert(at, 1, static_cast<char>(testing::Uniform(rng, 0, 255)));
      }
    }
    v1::Graph proto;
    if (!proto.ParseFromString(bad) || !FromProto(proto).ok()) ++refused;
  }
  PutPayload("\xff\xff\xff");
  ExpectRefused(absl::StatusCode::kDataLoss, "not a graph");
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace stagewright
