#include "tests/worker_daemon/support/test_models.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/wire/graph_file.h"

namespace stagewright::testing {

std::string ModelPath(const std::string& name) {
  return absl::StrCat(STAGEWRIGHT_TEST_MODELS, "/", name);
}

Model LoadModel(const std::string& name) {
  auto graph = ReadGraphFile(ModelPath(name + ".swg"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return {name, std::make_shared<const Graph>(*std::move(graph)), ModelPath(name + ".safetensors"),
          ModelPath(name + ".data.safetensors")};
}

}  // namespace stagewright::testing
