#include "common/base/quantity.h"

#include <gtest/gtest.h>

#include <concepts>
#include <limits>
#include <set>
#include <sstream>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using Apples = Quantity<struct ApplesKind>;
using Pears = Quantity<struct PearsKind>;

template <typename A, typename B>
concept Adds = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Multiplies = requires(A a, B b) {
  a* b;
};
template <typename A, typename B>
concept Compares = requires(A a, B b) {
  a < b;
};

static_assert(Adds<Apples, Apples> && !Adds<Apples, Pears>);
static_assert(Multiplies<Apples, int> && Multiplies<int64_t, Apples>);
static_assert(!Multiplies<Apples, Apples> && !Multiplies<Apples, Pears>);
static_assert(!Multiplies<Apples, double>, "fractions of a whole thing are asked for by name");
static_assert(Compares<Apples, Apples> && Compares<Apples, int> && !Compares<Apples, Pears>);
static_assert(!std::convertible_to<Apples, int64_t> && !std::convertible_to<Apples, Pears>);
static_assert(!std::convertible_to<double, Apples>);
static_assert(sizeof(Apples) == sizeof(int64_t) && std::is_trivially_copyable_v<Apples>);

TEST(QuantityTest, CalculatesAsItsNumberDoes) {
  Apples apples = 7;
  EXPECT_EQ(apples + 5, Apples(12));
  EXPECT_EQ(apples - Apples(9), -Apples(2));
  EXPECT_EQ(3 * apples, apples * 3);
  EXPECT_EQ(apples / 2, 3);
  EXPECT_EQ(apples / Apples(2), 3);
  EXPECT_EQ(apples % Apples(4), Apples(3));
  apples += 1;
  apples *= 4;
  apples -= Apples(2);
  apples /= 3;
  EXPECT_EQ(apples.count(), 10);
  EXPECT_EQ(static_cast<double>(apples), 10.0);
}

TEST(QuantityTest, ComesFromNumbersThatTheProgramFindsOutByAnExplicitConversion) {
  const int64_t count = 5;
  EXPECT_EQ(Apples(count), 5);
  EXPECT_EQ(Apples{static_cast<int32_t>(count)}, 5);
  EXPECT_EQ(Apples(4.9), 4);
  EXPECT_EQ(Apples(-4.9), -4);
}

TEST(QuantityTest, OrdersAndHasTheLimitsOfItsNumber) {
  EXPECT_LT(Apples(3), Apples(4));
  EXPECT_GE(Apples(4), 4);
  EXPECT_EQ(std::numeric_limits<Apples>::max().count(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(std::numeric_limits<Apples>::lowest().count(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ((std::set<Apples>{4, 3, 4}.size()), 2);
}

TEST(QuantityTest, IsWrittenAsItsNumber) {
  std::ostringstream out;
  out << Apples(-3);
  EXPECT_EQ(out.str(), "-3");
  EXPECT_EQ(absl::StrCat(Apples(12), " apples"), "12 apples");
}

TEST(QuantityTest, NumbersOutOfRangeBecomeTheEndsOfIt) {
  EXPECT_EQ(Apples(1.9), 1);
  EXPECT_EQ(Apples(-1.9), -1);
  const Apples most(1e300);
  EXPECT_GT(most, 2'000'000'000'000'000'000);
  EXPECT_EQ(Apples(std::numeric_limits<double>::infinity()), most);
  EXPECT_EQ(Apples(std::numeric_limits<double>::quiet_NaN()), most);
  EXPECT_EQ(Apples(-1e300), -most);
  EXPECT_GT(most + most + most, most);  // No overflow.
}

}  // namespace
}  // namespace stagewright
