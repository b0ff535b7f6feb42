// What a mistyped word may have been meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagewright {

// The known word that takes fewest changes of a letter, if these are few for its length; else
// empty. O(words times letters squared).
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace stagewright
