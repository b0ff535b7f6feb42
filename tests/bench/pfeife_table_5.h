// Pfeife's table 5 as the paper prints it: how near estimates are to measured steps and memory.
#pragma once

#include <string>

namespace stagewright::bench {

// A page in Markdown: every row with its deviations, and sentences counted from them.
std::string PfeifeTable5();

}  // namespace stagewright::bench
