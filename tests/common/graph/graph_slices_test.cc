// Which slices of stored tensors a graph may have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/graph/check_graph.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// Two slices of w, 6 x 4: rows 0 to 3 and 4 to 5.
std::vector<Parameter> Slices() {
  std::vector<Parameter> parameters(2);
  parameters[0].name = "w[1/2]";
  parameters[0].shape = {4, 4};
  parameters[0].slice = {"w", {"tied"}, {6, 4}, 0, 0};
  parameters[1].name = "w[2/2]";
  parameters[1].shape = {2, 4};
  parameters[1].slice = {"w", {"tied"}, {6, 4}, 0, 4};
  return parameters;
}

TEST(CheckSlicesTest, TakesSlicesInAnyOrder) {
  std::vector<Parameter> parameters = Slices();
  EXPECT_TRUE(CheckSlices(parameters).ok());
  std::swap(parameters[0], parameters[1]);
  EXPECT_TRUE(CheckSlices(parameters).ok());
  EXPECT_TRUE(CheckSlices({}).ok());
}

TEST(CheckSlicesTest, NamesTheParameterAndWhatIsWrong) {
  using Change = std::function<void(std::vector<Parameter>&)>;
  const std::vector<std::pair<Change, const char*>> cases = {
      {[](auto& p) { p.pop_back(); }, "ends at 4, \"w\" at 6"},
      {[](auto& p) { p.erase(p.begin()); }, "begins at 4, not at 0"},
      {[](auto& p) { p[1].slice->begin = 3; }, "begins at 3, not at 4"},
      {[](auto& p) { p[1].slice->begin = 5; }, "dimension 0 leaves the tensor"},
      {[](auto& p) { p[1].slice->begin = -1; }, "dimension 0 leaves the tensor"},
      {[](auto& p) { p[1].slice->dim = 2; }, "dimension 2 does not exist"},
      {[](auto& p) { p[1].slice->dim = -1; }, "dimension -1 does not exist"},
      {[](auto& p) { p[1].shape[1] = 3; }, "dimension 1 leaves the tensor"},
      {[](auto& p) { p[1].shape.pop_back(); }, "does not exist"},
      {[](auto& p) { p[1].slice->whole = ""; }, "the tensor has no name"},
      {[](auto& p) { p[1].dtype = DType::kFloat64; }, "\"w\" is told in two ways"},
      {[](auto& p) { p[1].trainable = false; }, "\"w\" is told in two ways"},
      {[](auto& p) { p[1].slice->aliases = {}; }, "\"w\" is told in two ways"},
      {[](auto& p) { p[1].aliases = {"again"}; }, "has no aliases of its own"},
      {[](auto& p) { p[1].data = ""; }, "a slice is no constant"},
      {[](auto& p) {
         p.emplace_back();
         p.back().name = "w";
       },
       "the name \"w\" is used twice"},
      {[](auto& p) {
         p.emplace_back();
         p.back().name = "x";
         p.back().aliases = {"tied"};
       },
       "the name \"tied\" is used twice"},
  };
  for (const auto& [change, expected] : cases) {
    std::vector<Parameter> parameters = Slices();
    change(parameters);
    const absl::Status status = CheckSlices(parameters);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expected;
    EXPECT_THAT(status.message(), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace stagewright
