// What a partition search was asked before.
//
// A search that found nothing for some t, devices and samples in flight finds nothing for less of
// each, nor does one whose stages take longer or are allowed less. Where no range met t only
// because its messages are inside, Messages::kNetwork has the same answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner_service/planners/graphpipe/recurrence/partition.h"

namespace stagewright {

class KnownAnswers {
 public:
  // Nothing that `easier` fails to find exists for whoever asks here. Outlives this object.
  void LearnFrom(const KnownAnswers& easier) { easier_.push_back(&easier); }

  // A question without an answer.
  void Refute(double t, const PartitionLimits& limits) { refuted_.push_back({t, limits}); }
  // Whether it, or one with more of t, devices and samples in flight, has no answer here or where
  // this object learns from. O(questions).
  bool IsRefuted(double t, const PartitionLimits& limits) const;

  // An answer that Messages::kNetwork does not change, of a search with or without replicas.
  void Keep(double t, const PartitionLimits& limits, bool replicas, const Partition& partition) {
    found_.push_back({t, limits, replicas, partition});
  }
  // The answer to the same question that an easier search with as free a choice of replicas kept.
  std::optional<Partition> FromEasier(double t, const PartitionLimits& limits, bool replicas) const;

 private:
  struct Question {
    double t = 0;
    PartitionLimits limits;
  };
  struct Found {
    double t = 0;
    PartitionLimits limits;
    bool replicas = true;
    Partition partition;
  };

  std::vector<Question> refuted_;
  std::vector<Found> found_;
  std::vector<const KnownAnswers*> easier_;
};

}  // namespace stagewright
