// A program as a table that people can read.
#pragma once

#include <cstdint>
#include <string>

#include "common/program/program.h"

namespace stagewright {

// One line per device, compute actions in order. With a marked cell (row in Program::devices, index
// in its body) only the columns around it, and the cell itself, also if it is a transfer, in angle
// brackets.
std::string Grid(const Program& program, int32_t marked_row = -1, int32_t marked_action = -1);

}  // namespace stagewright
