// How `submit` says that a job is to be trained.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/training/training_spec.h"

namespace stagewright::cli {

struct TrainingFlags {
  TrainingSpec training;            // As far as a flag is one of its fields.
  std::string optimizer = "adam";   // One of TrainableOptimizerNames.
  std::vector<std::string> groups;  // "GLOB=DECAY" or "GLOB=DECAY,SCALE".
  double checkpoint_minutes = 0;
  // Options that mean nothing without certain choices of another one.
  struct Belonging {
    const CLI::Option* option;
    const CLI::Option* to;
    std::vector<std::string> choices;
  };
  std::vector<Belonging> belongings;
};

// Optimizer, schedule, evaluation, precision and checkpoints. `flags` outlives the app.
void AddTrainingFlags(CLI::App& submit, TrainingFlags& flags);

// INVALID_ARGUMENT names a flag that cannot be read, or that would do nothing. The planner checks
// the numbers. REQUIRES: the app lives.
absl::StatusOr<TrainingSpec> MakeTraining(const TrainingFlags& flags);

}  // namespace stagewright::cli
