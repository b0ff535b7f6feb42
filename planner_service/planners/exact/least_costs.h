// What operators cost at least, whoever shares a stage with them: the tables that bounds are made
// of. Sums over the operators of a stage never exceed what the evaluator finds for it; constant
// nodes that a stage recomputes and parameters that several operators share are left out.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/units.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

class LeastCosts {
 public:
  struct Share {
    std::vector<std::vector<OperatorTime>> time;  // [kind][operator]
    std::vector<Bytes> saved;
  };
  // A value that an operator hands to others.
  struct Use {
    int32_t consumer = 0;
    bool gradient = false;
  };
  struct Value {
    int32_t producer = 0;
    Bytes bytes_per_sample = 0;  // 0 where it depends on the number of samples.
    std::vector<Use> uses;       // By consumer, each once.
  };

  // The problem must outlive it.
  explicit LeastCosts(const Problem& problem);

  int32_t size() const { return static_cast<int32_t>(resident_.size()); }
  const Share& Of(int64_t samples);
  const std::vector<Value>& values() const { return values_; }
  Bytes resident(int32_t op) const { return resident_[op]; }
  Bytes gradients(int32_t op) const { return gradients_[op]; }
  Bytes trained(int32_t op) const { return trained_[op]; }

 private:
  void CollectParameters();
  void CollectValues();

  const Problem& problem_;
  std::vector<Bytes> resident_, gradients_, trained_;
  std::vector<Value> values_;
  std::map<int64_t, Share> shares_;
};

}  // namespace stagewright
