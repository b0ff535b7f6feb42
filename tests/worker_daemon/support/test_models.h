// The models of tests/data/export_models.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/graph/graph.h"

namespace stagewright::testing {

// A file beside the models.
std::string ModelPath(const std::string& name);

struct Model {
  std::string name;  // "chain_f64"
  std::shared_ptr<const Graph> graph;
  std::string weights, data;  // Paths.

  // How far results may be from the reference, relative.
  double tolerance() const { return name.ends_with("_f64") ? 1e-9 : 1e-5; }
};

Model LoadModel(const std::string& name);

}  // namespace stagewright::testing
