#include "common/graph/operators/check_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/graph/operators/allowed_operators.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

Node Call(const std::string& target, std::vector<Argument> args = {}) {
  Node node;
  node.name = "n";
  node.target = target;
  node.args = std::move(args);
  return node;
}

Node WithKeyword(const std::string& target, const std::string& name, const std::string& text) {
  Node node = Call(target);
  node.kwargs.push_back({name, {text}});
  return node;
}

TEST(CheckOperator, AllowsWhatModelsAreMadeOf) {
  for (const char* target :
       {"aten.linear.default", "aten.add.Tensor", "aten.batch_norm.default", "aten.lstm.input",
        "aten.view.default", "aten._to_copy.default", "aten.where.self", "aten.to.dtype",
        "aten.scaled_dot_product_attention.default", "aten.dropout.default"}) {
    EXPECT_TRUE(CheckOperator(Call(target)).ok()) << target;
  }
}

TEST(CheckOperator, RefusesWhatDoesMoreThanCompute) {
  for (const char* target : {"aten.from_file.default",
                             "aten.from_file.out",
                             "aten.add_.Tensor",
                             "aten.add.out",
                             "aten.empty.memory_format",
                             "aten.set_.source_Storage",
                             "aten._print.default",
                             "aten._cufft_clear_plan_cache.default",
                             "aten.pin_memory.default",
                             "aten.nonsense.default",
                             "aten.batch_norm_update_stats.default",
                             "aten.native_batch_norm.out",
                             "aten.linear",
                             "aten..default",
                             "aten.",
                             "",
                             "prim.Print.default",
                             "torch.ops.aten.linear.default",
                             "ATEN.linear.default",
                             "aten.linear.default ",
                             "aten.linear.default aten.add.Tensor"}) {
    const absl::Status status = CheckOperator(Call(target));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << target;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"n\" (", target, ")")));
  }
}

TEST(CheckOperator, TakesTheWordsThatOperatorsKnowAndNoOtherText) {
  EXPECT_TRUE(CheckOperator(WithKeyword("aten.gelu.default", "approximate", "tanh")).ok());
  EXPECT_TRUE(CheckOperator(WithKeyword("aten.div.Tensor_mode", "rounding_mode", "floor")).ok());
  EXPECT_TRUE(
      CheckOperator(Call("aten.einsum.default", {{std::string("bij, bjk -> b...k")}})).ok());
  for (const char* text : {"/etc/passwd", "Tanh", "tanh ", "", "a,b->c;x"}) {
    EXPECT_THAT(
        std::string(CheckOperator(WithKeyword("aten.gelu.default", "approximate", text)).message()),
        HasSubstr(absl::StrCat("\"", text, "\"")));
  }
  EXPECT_FALSE(CheckOperator(Call("aten.einsum.default", {{std::string("/proc")}})).ok());
  EXPECT_FALSE(CheckOperator(Call("aten.einsum.default", {{std::string(257, 'a')}})).ok());
  EXPECT_FALSE(CheckOperator(WithKeyword("aten.pad.default", "mode", "ij->ji")).ok());
  // A list hides nothing.
  Argument::List list = {{Argument::List{{std::string("/etc/passwd")}}}};
  EXPECT_FALSE(CheckOperator(Call("aten.cat.default", {{list}})).ok());
}

TEST(CheckOperators, NamesTheFieldAndLooksIntoTheTotals) {
  GraphData data;
  data.nodes = {Call("aten.relu.default"), Call("aten.from_file.default")};
  EXPECT_THAT(std::string(CheckOperators(data).message()),
              HasSubstr("nodes[1]: node \"n\" (aten.from_file.default)"));
  data.nodes.pop_back();
  EXPECT_TRUE(CheckOperators(data).ok());
  data.totals.nodes = {Call("aten.from_file.default")};
  EXPECT_THAT(std::string(CheckOperators(data).message()), HasSubstr("totals.nodes[0]: node"));
}

TEST(CheckOperators, LetsPassWhatIsNeverRun) {
  GraphData data;
  data.nodes = {Call("a layer of somebody's profile")};
  data.nodes[0].cost = ProfiledCost();
  EXPECT_TRUE(CheckOperators(data).ok());
}

}  // namespace
}  // namespace stagewright
