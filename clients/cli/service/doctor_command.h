// `stagewright doctor`: looks at everything that a service needs and says what to do.
#pragma once

#include <CLI/CLI.hpp>

#include "clients/cli/globals.h"

namespace stagewright::cli {

void AddDoctorCommand(CLI::App& app, Globals& globals);

}  // namespace stagewright::cli
