#include "common/validation/validate_samples.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// Every sample once per stage; on each device in sample order.
absl::Status CheckTiling(const Validation& v, StageId stage, const std::vector<Cell>& cells,
                         const char* what) {
  std::vector<Cell> sorted = cells;
  for (size_t i = 1; i < cells.size(); ++i) {
    if (cells[i].row == cells[i - 1].row &&
        v.At(cells[i]).action.samples.begin < v.At(cells[i - 1]).action.samples.begin) {
      return v.Broken(cells[i], "C4: ", what, " passes are not in sample order");
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](Cell a, Cell b) { return v.At(a).action.samples < v.At(b).action.samples; });
  int64_t done = 0;
  for (Cell cell : sorted) {
    const SampleRange samples = v.At(cell).action.samples;
    if (samples.begin < done) {
      return v.Broken(cell, "C4: samples from ", samples.begin, " to ", std::min(done, samples.end),
                      " have their ", what, " pass twice");
    }
    if (samples.begin > done) {
      return v.Broken(cell, "C4: samples from ", done, " to ", samples.begin, " of stage ",
                      stage.value(), " have no ", what, " pass");
    }
    done = samples.end;
  }
  if (done == v.program().mini_batch) return absl::OkStatus();
  const std::string missing =
      absl::StrCat("C4: samples from ", done, " to ", v.program().mini_batch, " of stage ",
                   stage.value(), " have no ", what, " pass");
  return sorted.empty() ? v.BrokenAnywhere(missing) : v.Broken(sorted.back(), missing);
}

// On each device, the i-th of `later` covers the samples of the i-th of `earlier` and follows it.
absl::Status CheckFollows(const Validation& v, const std::vector<Cell>& earlier,
                          const std::vector<Cell>& later) {
  for (size_t i = 0; i < later.size(); ++i) {
    const Action& action = v.At(later[i]).action;
    if (i >= earlier.size() || earlier[i].row != later[i].row ||
        v.At(earlier[i]).action.samples != action.samples) {
      return v.Broken(later[i], "C4: no pass in the same order covered these samples before");
    }
    if (earlier[i].action > later[i].action) {
      return v.Broken(later[i], "C4: it comes before ", ToString(v.At(earlier[i]).action));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSamples(const Validation& v) {
  for (size_t s = 0; s < v.program().stages.size(); ++s) {
    const StageId stage(static_cast<int64_t>(s));
    const auto& forwards = v.Of(ActionKind::kForward)[s];
    RETURN_IF_ERROR(CheckTiling(v, stage, forwards, "forward"));
    const auto& whole = v.Of(ActionKind::kBackward)[s];
    const auto& input = v.Of(ActionKind::kBackwardInput)[s];
    const auto& weight = v.Of(ActionKind::kBackwardWeight)[s];
    const auto& again = v.Of(ActionKind::kRecompute)[s];
    if (!v.program().training || !v.program().stages[s].has_backward) {
      for (const auto* cells : {&whole, &input, &weight, &again}) {
        if (!cells->empty()) return v.Broken(cells->front(), "the stage has no backward pass");
      }
      continue;
    }
    // A stage runs whole backward passes or, everywhere, their two halves.
    const bool halves = whole.empty() && !input.empty();
    if (!whole.empty() && !(input.empty() && weight.empty()))
      return v.Broken((input.empty() ? weight : input).front(),
                      "C4: the stage has whole backward passes too");
    const auto& backwards = halves ? input : whole;
    RETURN_IF_ERROR(CheckTiling(v, stage, backwards, "backward"));
    RETURN_IF_ERROR(CheckFollows(v, forwards, backwards));
    if (halves) {
      RETURN_IF_ERROR(CheckTiling(v, stage, weight, "weight gradient"));
      RETURN_IF_ERROR(CheckFollows(v, input, weight));
    }
    if (!again.empty()) {
      RETURN_IF_ERROR(CheckFollows(v, forwards, again));
      RETURN_IF_ERROR(CheckFollows(v, again, backwards));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
