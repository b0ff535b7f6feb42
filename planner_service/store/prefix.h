// Ranges of keys that start alike.
#pragma once

#include <string>

namespace stagewright {

// The first key behind all that start with `prefix`; empty if there is none.
inline std::string BehindPrefix(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (!prefix.empty()) ++prefix.back();
  return prefix;
}

}  // namespace stagewright
