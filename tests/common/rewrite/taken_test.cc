#include "common/rewrite/taken.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using testing::Number;
using ::testing::Optional;

Argument Sizes(const std::vector<int64_t>& sizes) {
  Argument::List list;
  for (int64_t size : sizes) list.push_back(Number(size));
  return {std::move(list)};
}

// A node over a value of 3 x 12 a sample (and the batch in front) that comes in `parts`.
class TakenTest : public ::testing::Test {
 protected:
  std::optional<std::vector<int32_t>> Taken(const std::string& target, std::vector<Argument> more,
                                            size_t outputs, InParts parts = {2, 3}) {
    GraphBuilder build("taken");
    const Argument x = build.Add("aten.relu.default", {build.Feature("x", {3, 12})}, {3, 12});
    std::vector<Argument> args = {x};
    args.insert(args.end(), more.begin(), more.end());
    const Argument out = build.AddWith("aten." + target, std::move(args),
                                       std::vector<TensorMeta>(outputs, Batched({3, 4})));
    build.Loss(out, {3, 4});
    graph_ = build.Build();
    node_ = testing::NodeOf(out);
    return TakenParts(*graph_, node_, [&](ValueRef value) {
      return value == std::get<ValueRef>(x.value) ? std::optional(parts) : std::nullopt;
    });
  }

  std::optional<Graph> graph_;
  NodeId node_;
};

TEST_F(TakenTest, SplitsAndChunksIntoTheParts) {
  EXPECT_THAT(Taken("split.Tensor", {Number(4), Number(2)}, 3), Optional(ElementsAre(0, 1, 2)));
  EXPECT_THAT(Taken("chunk.default", {Number(3), Number(-1)}, 3), Optional(ElementsAre(0, 1, 2)));
  EXPECT_THAT(Taken("split_with_sizes.default", {Sizes({4, 4, 4}), Number(2)}, 3),
              Optional(ElementsAre(0, 1, 2)));
  EXPECT_EQ(Taken("split.Tensor", {Number(6), Number(2)}, 2), std::nullopt);
  EXPECT_EQ(Taken("split.Tensor", {Number(1), Number(1)}, 3), std::nullopt);
  EXPECT_EQ(Taken("split_with_sizes.default", {Sizes({6, 4, 2}), Number(2)}, 3), std::nullopt);
}

TEST_F(TakenTest, SlicesThatAreAPart) {
  const auto slice = [&](int64_t begin, int64_t end) {
    return Taken("slice.Tensor", {Number(2), Number(begin), Number(end)}, 1);
  };
  EXPECT_THAT(slice(0, 4), Optional(ElementsAre(0)));
  EXPECT_THAT(slice(-4, 1 << 30), Optional(ElementsAre(2)));
  EXPECT_THAT(slice(4, -4), Optional(ElementsAre(1)));
  EXPECT_EQ(slice(0, 8), std::nullopt);
  EXPECT_EQ(slice(2, 6), std::nullopt);
  EXPECT_EQ(Taken("slice.Tensor", {Number(2), Number(0), Number(4), Number(2)}, 1), std::nullopt);
}

TEST_F(TakenTest, SelectsAndUnbindsPartsOfSizeOne) {
  const InParts rows{1, 3};
  EXPECT_THAT(Taken("select.int", {Number(1), Number(2)}, 1, rows), Optional(ElementsAre(2)));
  EXPECT_THAT(Taken("select.int", {Number(-2), Number(-3)}, 1, rows), Optional(ElementsAre(0)));
  EXPECT_THAT(Taken("unbind.int", {Number(1)}, 3, rows), Optional(ElementsAre(0, 1, 2)));
  EXPECT_EQ(Taken("select.int", {Number(2), Number(0)}, 1), std::nullopt);
  EXPECT_EQ(Taken("select.int", {Number(2), Number(0)}, 1, rows), std::nullopt);
}

TEST_F(TakenTest, GivesThePartWithoutTheDimensionThatIsSelected) {
  ASSERT_TRUE(Taken("unbind.int", {Number(1)}, 3, {1, 3}));
  const Node selected = TakenFrom(*graph_, node_, 2, {1, 3}, NodeId(0));
  EXPECT_EQ(selected.target, "aten.select.int");
  EXPECT_EQ(selected.name, "n1[3/3]");
  EXPECT_THAT(selected.args, ElementsAre(Argument{ValueRef{NodeId(0), 0}}, Number(1), Number(0)));
  ASSERT_TRUE(Taken("chunk.default", {Number(3), Number(2)}, 3));
  EXPECT_EQ(TakenFrom(*graph_, node_, 0, {2, 3}, NodeId(0)).target, "aten.alias.default");
}

}  // namespace
}  // namespace stagewright
