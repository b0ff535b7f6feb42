#include "common/training/names.h"

#include <gtest/gtest.h>

#include "common/training/non_finite.h"
#include "common/training/optimizer_spec.h"
#include "common/training/precision.h"

namespace stagewright {
namespace {

template <typename Enum, size_t n>
void ExpectWhole(const Named<Enum> (&table)[n], Enum last) {
  EXPECT_EQ(n, static_cast<size_t>(last) + 1);
  for (const std::string& name : NamesIn(table)) {
    const std::optional<Enum> value = FindIn(table, name);
    ASSERT_TRUE(value.has_value()) << name;
    EXPECT_EQ(NameIn(table, *value), name);
  }
}

TEST(Names, EveryTableNamesEveryValue) {
  ExpectWhole(kOptimizerNames, Optimizer::kAdam);
  ExpectWhole(kDecayNames, Decay::kStep);
  ExpectWhole(kNonFiniteNames, NonFinite::kContinue);
  ExpectWhole(kPrecisionNames, Precision::kFloat16);
}

TEST(Names, WhatATableDoesNotHave) {
  EXPECT_FALSE(FindIn(kPrecisionNames, "fp8").has_value());
  EXPECT_FALSE(FindIn(kPrecisionNames, "").has_value());
  EXPECT_EQ(NameIn(kPrecisionNames, static_cast<Precision>(7)), "unknown");
}

}  // namespace
}  // namespace stagewright
