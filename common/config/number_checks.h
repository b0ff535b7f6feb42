// What numbers of flags must be; each says so in one message. None takes what is no number, nan,
// which compares with nothing and so passes for being in range.
#pragma once

#include <CLI/CLI.hpp>

namespace stagewright {

// A whole number, 1 or more.
CLI::Validator Positive();

// Seconds or minutes, above 0 and at most ten years, so that they can be added to any time.
CLI::Validator Seconds();
CLI::Validator Minutes();

// A number from `least` to `most`.
CLI::Validator Within(double least, double most);

// Has all options of the app and its commands that take whole numbers refuse those of more than 64
// bits, and signs where there are none: CLI11 takes the nearest number that fits.
void RefuseWhatDoesNotFit(CLI::App& app);

}  // namespace stagewright
