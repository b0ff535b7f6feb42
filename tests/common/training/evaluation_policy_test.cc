#include "common/training/evaluation_policy.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stagewright {
namespace {

std::string Message(const EvaluationPolicy& policy, bool has_data = true) {
  return std::string(Check(policy, has_data, "spec.").message());
}

TEST(EvaluationPolicy, AcceptsNoneAndAll) {
  EXPECT_EQ(Message({}, /*has_data=*/false), "");
  EXPECT_EQ(Message({.every = 2, .patience = 3, .min_delta = 0.1}), "");
}

TEST(EvaluationPolicy, NamesTheField) {
  EXPECT_EQ(Message({.every = -1}), "spec.evaluate_every must not be negative, is -1");
  EXPECT_EQ(Message({.every = 2}, /*has_data=*/false),
            "spec.evaluate_every needs spec.evaluation_data_path");
  EXPECT_EQ(Message({.every = 2, .patience = -3}), "spec.patience must not be negative, is -3");
  EXPECT_EQ(Message({.patience = 3}), "spec.patience needs spec.evaluate_every");
  EXPECT_EQ(Message({.min_delta = std::nan("")}),
            "spec.min_delta must be finite and not negative, is nan");
}

}  // namespace
}  // namespace stagewright
