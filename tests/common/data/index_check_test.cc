#include "common/data/index_check.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

// All but the last of tokens[samples, 3] is looked up in a table of 5 rows.
Graph Lookup() {
  GraphData data;
  data.name = "lookup";
  data.inputs = {{"tokens", {DType::kInt32, {{1, 0}, {0, 3}}}, InputRole::kFeature},
                 {"x", {DType::kFloat32, {{1, 0}}}, InputRole::kFeature}};
  data.parameters.push_back({"table", DType::kFloat32, {5, 2}});
  Node cut;
  cut.name = "cut";
  cut.target = "aten.slice.Tensor";
  cut.args = {{InputId(0)}, {SymInt{0, 1}}, {SymInt{0, 0}}, {SymInt{0, -1}}};
  cut.outputs = {{DType::kInt32, {{1, 0}, {0, 2}}}};
  Node embedding;
  embedding.name = "embedding";
  embedding.module = "words";
  embedding.target = "aten.embedding.default";
  embedding.args = {{ParameterId(0)}, {ValueRef{NodeId(0), 0}}};
  embedding.outputs = {{DType::kFloat32, {{1, 0}, {0, 2}, {0, 2}}}};
  data.nodes = {cut, embedding};
  return *Graph::Create(data);
}

IndexCheck::Finding Check(const std::vector<int32_t>& tokens) {
  const IndexCheck check(Lookup());
  return check.Check(InputId(0), static_cast<int64_t>(tokens.size()) / 3,
                     reinterpret_cast<const std::byte*>(tokens.data()));
}

TEST(IndexCheckTest, NamesTheFirstBadEntry) {
  const IndexCheck::Finding high = Check({0, 4, 1, 2, 5, 0, -1, 0, 0});
  EXPECT_EQ(high.sample, 1);
  EXPECT_EQ(high.what, "holds 5 at [1], the table of \"words\" has rows 0 to 4");
  EXPECT_EQ(Check({-1, 0, 0}).what, "holds -1 at [0], the table of \"words\" has rows 0 to 4");
}

TEST(IndexCheckTest, WhatNobodyLooksUpMayBeAnything) {
  EXPECT_EQ(Check({0, 4, 99}).what, "");
  const IndexCheck check(Lookup());
  EXPECT_TRUE(check.Applies(InputId(0)));
  EXPECT_FALSE(check.Applies(InputId(1)));
  EXPECT_FALSE(IndexCheck().Applies(InputId(0)));
}

}  // namespace
}  // namespace stagewright
