#include "common/cost/operations/contraction.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/cost/operations/flops.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

class ContractionTest : public ::testing::Test {
 protected:
  double Flops(const std::string& target, std::vector<Argument> args, std::vector<int64_t> shape,
               int64_t samples) {
    const Argument node = builder_.Add(target, std::move(args), std::move(shape));
    return ForwardFlops(builder_.Build(), NodeOf(node), samples);
  }
  double Einsum(const std::string& equation, std::vector<Argument> operands,
                std::vector<int64_t> shape, int64_t samples) {
    return Flops("aten.einsum.default", {{equation}, {std::move(operands)}}, std::move(shape),
                 samples);
  }

  GraphBuilder builder_{"contractions"};
};

TEST_F(ContractionTest, EinsumIsTheProductThatItWrites) {
  const Argument x = builder_.Feature("x", {10, 16});
  const Argument w = builder_.Weight("w", {16, 32});
  for (const char* equation : {"bti,io->bto", "bti, io -> bto", "...i,io->...o"})
    EXPECT_EQ(Einsum(equation, {x, w}, {10, 32}, 3), 2 * 3 * 10 * 16 * 32) << equation;
  EXPECT_EQ(Einsum("bti,io", {x, w}, {10, 32}, 3), 2 * 3 * 10 * 16 * 32) << "as alphabet has it";
}

TEST_F(ContractionTest, EinsumOverHeadsCountsItsBatches) {
  const Argument q = builder_.Feature("q", {5, 2, 8});
  const Argument k = builder_.Feature("k", {7, 2, 8});
  EXPECT_EQ(Einsum("bthd,bshd->bhts", {q, k}, {2, 5, 7}, 4), 2 * 4 * 2 * 5 * 7 * 8);
  EXPECT_EQ(Einsum("bthd,bthd->bthd", {q, q}, {5, 2, 8}, 4), 4 * 5 * 2 * 8) << "nothing is summed";
}

TEST_F(ContractionTest, EinsumTakesSeveralOperandsFromTheLeft) {
  const Argument x = builder_.Feature("x", {10, 16});
  const Argument w = builder_.Weight("w", {16, 32});
  const Argument v = builder_.Weight("v", {32, 4});
  EXPECT_EQ(Einsum("bti,io,ok->btk", {x, w, v}, {10, 4}, 3),
            2 * 3 * 10 * 16 * 32 + 2 * 3 * 10 * 32 * 4);
}

TEST_F(ContractionTest, WhatIsNoEquationCountsItsResults) {
  const Argument x = builder_.Feature("x", {10, 16});
  EXPECT_EQ(Einsum("bti->bit", {x}, {16, 10}, 3), 3 * 16 * 10);
  EXPECT_EQ(Einsum("bti,io->bto", {x}, {10, 32}, 3), 3 * 10 * 32) << "an operand is missing";
  EXPECT_EQ(Einsum("bt,io->bto", {x, x}, {10, 32}, 3), 3 * 10 * 32) << "of another rank";
}

TEST_F(ContractionTest, OthersCountWhatTheySumOver) {
  const Argument x = builder_.Feature("x", {10, 16});
  const Argument w = builder_.Weight("w", {16, 32});
  const auto dims = [](int64_t dim) { return Argument{Argument::List{Number(dim)}}; };
  EXPECT_EQ(Flops("aten.tensordot.default", {x, w, dims(2), dims(0)}, {10, 32}, 3),
            2 * 3 * 10 * 32 * 16);
  EXPECT_EQ(Flops("aten.tensordot.default", {x, w, dims(-1), dims(0)}, {10, 32}, 3),
            2 * 3 * 10 * 32 * 16);
  const Argument y = builder_.Feature("y", {10, 6});
  const Argument form = builder_.Weight("form", {8, 16, 6});
  EXPECT_EQ(Flops("aten.bilinear.default", {x, y, form}, {10, 8}, 3), 2 * 3 * 10 * 8 * 16 * 6);
  const Argument points = builder_.Weight("points", {40, 16});
  EXPECT_EQ(Flops("aten.cdist.default", {x, points}, {10, 40}, 3), 2 * 3 * 10 * 40 * 16);
}

TEST_F(ContractionTest, AChainOfMatricesBeginsAtItsCheaperEnd) {
  const Argument x = builder_.Feature("x", {16});
  const Argument w = builder_.Weight("w", {16, 100});
  const Argument v = builder_.Weight("v", {100, 2});
  const Argument::List chain = {x, w, v};
  EXPECT_EQ(Flops("aten.linalg_multi_dot.default", {{chain}}, {2}, 1),
            2 * (1 * 16 * 100 + 1 * 100 * 2));
  EXPECT_EQ(Flops("aten.linalg_multi_dot.default", {{chain}}, {2}, 1000),
            2.0 * (16 * 100 * 2 + 1000 * 16 * 2));
}

}  // namespace
}  // namespace stagewright
