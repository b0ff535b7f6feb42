// What the stages of a suffix ask of a stage before them: the samples it has to
// keep in flight, for every config that it may have.
//
// Many partitions ask for the same, so each different row of needs is kept once
// and named by a number: rows are equal if their names are, and the largest of
// two rows is looked up rather than computed. With a single config the name is
// the need itself.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace stagewright {

// b and k of a stage.
struct StageConfig {
  int64_t micro_batch = 1;
  int32_t k = 1;
  friend auto operator<=>(const StageConfig&, const StageConfig&) = default;
};

class NeedRows {
 public:
  using Row = int64_t;
  static constexpr Row kNothing = 0;  // No stage asks for anything.

  NeedRows(std::vector<StageConfig> configs, int64_t mini_batch);
  NeedRows(const NeedRows&) = delete;  // The set of rows refers to the object itself.

  // Forgets all rows. What exceeds `most` samples in flight is out of the
  // question from now on, and all such needs are the same.
  void Reset(int64_t most);

  // The need of a stage with this config. Of several configs: rounded up to
  // what such a stage can keep in flight.
  int64_t At(Row row, size_t config) const {
    return single_ ? row : values_[row * configs_.size() + config];
  }
  // What a stage with this config asks for that keeps so many samples in
  // flight, a multiple of its micro-batch. O(1), once a row is known.
  Row Of(size_t config, int64_t in_flight);
  // The larger of both needs, for every config. Mostly O(1).
  Row Larger(Row a, Row b) {
    if (single_) return a < b ? b : a;
    if (a == b || b == kNothing) return a;
    if (a == kNothing) return b;
    return LargerOf(a, b);
  }
  // Whether `a` asks for no more than `b`, for every config. O(configs).
  bool AtMost(Row a, Row b) const {
    if (single_ || a == b) return a <= b;
    return sums_[a] < sums_[b] && AtMostOf(a, b);
  }
  // Grows with any need.
  int64_t Sum(Row row) const { return single_ ? row : sums_[row]; }

 private:
  struct Known {  // The last result for a pair of rows with one hash.
    Row a = -1;
    Row b = -1;
    Row larger = 0;
  };
  struct Hash {
    const NeedRows* rows;
    size_t operator()(Row row) const;
  };
  struct Equal {
    const NeedRows* rows;
    bool operator()(Row a, Row b) const;
  };
  Row LargerOf(Row a, Row b);
  bool AtMostOf(Row a, Row b) const;
  // The name of the row that was appended to values_ last.
  Row Name();
  // What stages with the config can keep in flight for this need.
  int64_t Round(const StageConfig& config, int64_t need) const;

  std::vector<StageConfig> configs_;
  int64_t mini_batch_;
  bool single_;
  int64_t most_ = 0;
  std::vector<int64_t> values_;  // [row][config]
  std::vector<int64_t> sums_;    // Sum of each row.
  absl::flat_hash_set<Row, Hash, Equal> names_;
  std::vector<std::vector<Row>> of_;  // [config][micro-batches in flight]; -1: not asked yet.
  std::vector<Known> known_;
  int64_t asked_ = -1;  // With a single config: the last question to Of.
  Row answer_ = 0;
};

}  // namespace stagewright
