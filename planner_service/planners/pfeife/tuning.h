// The constants that bound Pfeife's search. The figures in docs/planners/pfeife.md were taken with
// these values; which of them were chosen by measuring, and on what, is said with each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stagewright::pfeife {

struct Tuning {
  // Budgets of the phases, in vertices of dependency graphs that are visited, or as much work of
  // other kinds. A vertex was measured to take about 10 ns, so that these are 0.2, 0.4, 0.2 and 0.1
  // seconds; how they are shared out between the phases is untuned.
  static constexpr int64_t kRating = 20'000'000;     // Rates all shapes.
  static constexpr int64_t kExploring = 40'000'000;  // Searches those that look good.
  static constexpr int64_t kDeepening = 20'000'000;  // Searches the best wider.
  static constexpr int64_t kPolishing = 10'000'000;  // Searches the warm-ups of the best one.
  // Settings with more pairs of slice and micro-batch are left to those who ask for them. Judging
  // one of this size was measured to take about a tenth of a second; the limit follows from that.
  static constexpr int64_t kMostJudged = 40'000;
  // How many of each shape's best cuts are simulated. Untuned.
  static constexpr size_t kMostSimulations = 12;
  // Width of beams over shapes that are explored, and how many operators their moves reach.
  // Untuned.
  static constexpr int32_t kNarrow = 6;
  static constexpr int32_t kNarrowReach = 4;
  // Width of beams over the best shapes, the L_K with which the table of docs/planners/pfeife.md
  // was measured. Twice as wide a beam took the estimate on mmt4_layer, 8 devices, from 274 to 257
  // ms.
  static constexpr int32_t kWide = 32;
  // How many of the best shapes such a beam goes over. Untuned.
  static constexpr size_t kDeepened = 4;
  // A candidate may use one part in so many of what is left for exploring. Untuned.
  static constexpr int64_t kCandidateShare = 6;
  // A candidate whose first search ends this many times behind the best is left. Untuned.
  static constexpr double kFar = 1.1;
  // A shape of a candidate is searched if the cuts of its best shape are within this factor there.
  // Untuned.
  static constexpr double kNear = 1.02;
  // Settings whose even cuts exceed the memory by this share come last, and only if nothing else
  // fits. Untuned.
  static constexpr double kHopeless = 0.5;
  // An estimate shorter than this share of the one before is worth a simulation at once. Untuned.
  static constexpr double kClearly = 0.97;
  // Beyond this multiple of a device's memory an excess says nothing of devices: it only tells such
  // an excess from none at all, so that there is nothing to tune.
  static constexpr double kMostExcess = 1e6;
  // Beam entries of one shape that the next one begins with. Untuned.
  static constexpr size_t kHandedOn = 2;
};

}  // namespace stagewright::pfeife
