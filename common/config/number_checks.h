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

}  // namespace stagewright
