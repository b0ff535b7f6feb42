// How much memory a message will take, told from its bytes before it is made of them: a list of
// empty messages has two bytes an entry on the wire, and a hundred times as much in memory.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstddef>

#include "absl/strings/string_view.h"

namespace stagewright {

// About the memory that `bytes` take as a message of this type, fields that it does not have among
// them; more than `most`, by how much does not matter, as soon as it is that. Of bytes that are no
// message, what comes before that shows. O(size).
size_t MessageMemory(const google::protobuf::Descriptor* type, absl::string_view bytes,
                     size_t most);

}  // namespace stagewright
