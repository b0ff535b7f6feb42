// Every operator of LibTorch's registry is either refused or harmless by its schema.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "common/graph/operators/allowed_operators.h"
#include "common/graph/operators/check_operators.h"
#include "worker_daemon/torch/operator_call.h"

namespace stagewright {
namespace {

// As graphs name it.
std::string TargetOf(const c10::OperatorName& name) {
  std::string target = name.name;
  if (const size_t colons = target.find("::"); colons != std::string::npos)
    target.replace(colons, 2, ".");
  return target + "." + (name.overload_name.empty() ? "default" : name.overload_name);
}

c10::TypePtr Bare(c10::TypePtr type) {
  while (type->kind() == c10::TypeKind::OptionalType || type->kind() == c10::TypeKind::ListType)
    type = type->containedType(0);
  return type;
}

// Text chooses among words, which CheckOperator knows; workers fill in devices themselves; graphs
// cannot hold a generator.
bool HarmlessType(const c10::Argument& argument) {
  static const std::set<std::string> kWords = {
      "UPLO", "approximate", "driver",  "equation",     "indexing", "interpolation", "mode", "norm",
      "ord",  "p",           "padding", "padding_side", "reduce",   "rounding_mode", "side"};
  static const std::set<c10::TypeKind> kKinds = {
      c10::TypeKind::TensorType,       c10::TypeKind::IntType,      c10::TypeKind::SymIntType,
      c10::TypeKind::FloatType,        c10::TypeKind::BoolType,     c10::TypeKind::NumberType,
      c10::TypeKind::ComplexType,      c10::TypeKind::LayoutType,   c10::TypeKind::ScalarTypeType,
      c10::TypeKind::MemoryFormatType, c10::TypeKind::GeneratorType};
  const c10::TypeKind kind = Bare(argument.type())->kind();
  if (kind == c10::TypeKind::StringType) return kWords.count(argument.name()) == 1;
  if (kind == c10::TypeKind::DeviceObjType) return argument.name() == "device";
  return kKinds.count(kind) == 1;
}

bool WritesOnlyStatistics(const std::string& target) {
  static const std::set<std::string> kTargets = {
      "aten._batch_norm_with_update.default", "aten._native_batch_norm_legit.default",
      "aten.batch_norm.default", "aten.instance_norm.default", "aten.native_batch_norm.default"};
  return kTargets.count(target) == 1;
}

TEST(OperatorCall, EveryAllowedOperatorOfTheRegistryIsHarmless) {
  int allowed = 0, all = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    const std::string target = TargetOf(name);
    ++all;
    if (!IsAllowedOperator(target)) continue;
    ++allowed;
    ASSERT_TRUE(handle.has_value()) << target;
    const c10::FunctionSchema& schema = handle->schema();
    EXPECT_EQ(name.name.rfind("aten::", 0), 0u) << target;
    EXPECT_TRUE(!schema.is_mutable() || WritesOnlyStatistics(target)) << schema;
    for (const c10::Argument& argument : schema.arguments())
      EXPECT_TRUE(HarmlessType(argument)) << schema;
    EXPECT_TRUE(std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& r) {
      return Bare(r.type())->kind() == c10::TypeKind::TensorType;
    })) << schema;
  }
  EXPECT_GT(all, 3000);
  EXPECT_GT(allowed, 800);
}

TEST(OperatorCall, RefusesEverythingElseThatTheRegistryHas) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string target = TargetOf(name);
    if (IsAllowedOperator(target)) continue;
    Node node;
    node.name = "n";
    node.target = target;
    const auto call = OperatorCall::Bind(node, at::kCPU, /*training=*/true, {});
    EXPECT_FALSE(call.ok()) << target;
    EXPECT_NE(call.status().message().find(target), absl::string_view::npos) << call.status();
  }
}

TEST(OperatorCall, ReadsAndMakesNoFile) {
  const std::string path = ::testing::TempDir() + "/made-by-a-graph";
  Node node;
  node.name = "read";
  node.target = "aten.from_file.default";
  node.args = {{path}, {true}, {SymInt{0, 8}}};
  const auto call = OperatorCall::Bind(node, at::kCPU, /*training=*/true, {});
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument) << call.status();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace stagewright
