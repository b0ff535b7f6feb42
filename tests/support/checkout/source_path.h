// Files of the checkout that tests read.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stagewright::testing {

// `path` counts from the root of the checkout. Only this library is compiled with where that is:
// ccache finds the objects of all other tests again in another checkout.
std::string SourcePath(absl::string_view path);

}  // namespace stagewright::testing
