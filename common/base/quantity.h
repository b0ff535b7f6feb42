// Numbers of one thing, which the compiler keeps apart from numbers of another.
//
// A Quantity is an integer that says what it counts. Constants become one where its type is named,
// any other number only by an explicit conversion; it becomes a number by count() or an explicit
// conversion, and text as it is. Quantities of one kind add up and compare, are multiplied and
// divided by whole numbers, and their ratio is a whole number; quantities of two kinds do not mix.
// It costs what its integer costs.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ostream>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {

template <typename T>
concept Number = std::is_arithmetic_v<T>;

template <typename Kind>
class Quantity {
 public:
  constexpr Quantity() = default;
  // Implicit for constants only. Where both are possible the one below is meant, which demands
  // more of T.
  template <std::integral T>
  consteval Quantity(T constant) : count_(constant) {}  // NOLINT(google-explicit-constructor)
  template <std::integral T>
  requires Number<T>
  constexpr explicit Quantity(T count) : count_(static_cast<int64_t>(count)) {}
  // Towards zero; what is beyond a quarter of int64's range becomes that, so that a few of them add
  // up, and what is no number the largest.
  template <std::floating_point T>
  constexpr explicit Quantity(T count) : count_(Saturated(static_cast<double>(count))) {}

  constexpr int64_t count() const { return count_; }
  template <Number T>
  constexpr explicit operator T() const {
    return static_cast<T>(count_);
  }

  constexpr Quantity operator-() const { return Quantity(-count_); }
  constexpr Quantity& operator+=(Quantity b) { return count_ += b.count_, *this; }
  constexpr Quantity& operator-=(Quantity b) { return count_ -= b.count_, *this; }
  constexpr Quantity& operator*=(std::integral auto n) { return count_ *= n, *this; }
  constexpr Quantity& operator/=(std::integral auto n) { return count_ /= n, *this; }

  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, std::integral auto n) { return a *= n; }
  friend constexpr Quantity operator*(std::integral auto n, Quantity a) { return a *= n; }
  friend constexpr Quantity operator/(Quantity a, std::integral auto n) { return a /= n; }
  friend constexpr int64_t operator/(Quantity a, Quantity b) { return a.count_ / b.count_; }
  friend constexpr Quantity operator%(Quantity a, Quantity b) {
    return Quantity(a.count_ % b.count_);
  }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr bool operator==(Quantity, Quantity) = default;
  friend constexpr auto operator<=>(Quantity a, std::integral auto n) {
    return a.count_ <=> static_cast<int64_t>(n);
  }
  friend constexpr bool operator==(Quantity a, std::integral auto n) {
    return a.count_ == static_cast<int64_t>(n);
  }

  operator absl::AlphaNum() const { return count_; }  // NOLINT(google-explicit-constructor)
  friend std::ostream& operator<<(std::ostream& out, Quantity q) { return out << q.count_; }
  template <typename H>
  friend H AbslHashValue(H h, Quantity q) {
    return H::combine(std::move(h), q.count_);
  }

 private:
  static constexpr int64_t Saturated(double count) {
    constexpr int64_t kMost = int64_t{1} << 61;
    if (count > -static_cast<double>(kMost) && count < static_cast<double>(kMost))
      return static_cast<int64_t>(count);
    return count < 0 ? -kMost : kMost;
  }

  int64_t count_ = 0;
};

}  // namespace stagewright

template <typename Kind>
struct std::numeric_limits<stagewright::Quantity<Kind>> : std::numeric_limits<int64_t> {
  using Of = stagewright::Quantity<Kind>;
  static constexpr Of min() { return Of(std::numeric_limits<int64_t>::min()); }
  static constexpr Of lowest() { return min(); }
  static constexpr Of max() { return Of(std::numeric_limits<int64_t>::max()); }
};
