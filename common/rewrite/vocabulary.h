// Words, which are integers, among the parts of a vocabulary.
#pragma once

#include <cstdint>
#include <string>

#include "common/graph/graph.h"
#include "common/rewrite/graph_edit.h"

namespace stagewright {

// One of `parts` parts: the words from `begin` on, `size` of them.
struct WordRange {
  int32_t index = 0;
  int32_t parts = 1;
  int64_t begin = 0;
  int64_t size = 0;
};

// What a part knows of each word.
struct LocalWords {
  NodeId index;    // Its number in the part, some number of the part for words outside of it.
  NodeId outside;  // It is in another part. A word that is in none is outside of none.
};

// Adds nodes that compute these; their names begin with `name`. A word below the first part or
// behind the last one keeps a number that is not there, so that it is the error that it would be
// without parts. `meta` is that of the words.
LocalWords AddLocalWords(const std::string& name, const std::string& module, const Argument& words,
                         const TensorMeta& meta, const WordRange& range, GraphEdit& edit);

}  // namespace stagewright
