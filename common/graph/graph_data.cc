#include "common/graph/graph_data.h"

namespace stagewright {

int64_t Parameter::Elements() const {
  int64_t product = 1;
  for (int64_t dim : shape) product *= dim;
  return product;
}

}  // namespace stagewright
