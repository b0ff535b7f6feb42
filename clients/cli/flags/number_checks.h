// What numbers on the command line must be; each says so in one message.
#pragma once

#include <CLI/CLI.hpp>

namespace stagewright::cli {

// A whole number, 1 or more.
CLI::Validator Positive();

// Seconds, above 0 and at most ten years, so that they can be added to any time.
CLI::Validator Seconds();

}  // namespace stagewright::cli
