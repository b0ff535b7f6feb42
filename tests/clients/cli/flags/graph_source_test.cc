#include "clients/cli/flags/graph_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/support/checkout/source_path.h"

namespace stagewright::cli {
namespace {

const std::string kGraph = testing::SourcePath("examples/graphs/case-study.swg");

GraphSource Parse(std::vector<std::string> words) {
  CLI::App app;
  GraphSource source;
  AddGraphSource(app, source);
  std::reverse(words.begin(), words.end());  // As CLI::App takes them.
  app.parse(std::move(words));
  return source;
}

TEST(GraphSource, IsAGraphFileUnlessToldOtherwise) {
  const GraphSource source = Parse({kGraph});
  std::vector<std::string> warnings;
  const Graph graph = LoadGraph(source, warnings).value();
  const SourceGraph sent = LoadSource(source).value();
  EXPECT_EQ(sent.graph.nodes_size(), graph.size());
  EXPECT_FALSE(sent.piper.has_value());
  EXPECT_FALSE(LoadSource(Parse({"no/such/file.swg"})).ok());
}

TEST(GraphSource, IsAProfileWithItsFormat) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("stagewright_graph_source_" + std::to_string(getpid()) + ".txt");
  std::ofstream(path) << "node1 -- Linear(in_features=8) -- forward_compute_time=1.0, "
                         "backward_compute_time=2.0, activation_size=32.0, parameter_size=64.0\n";
  const GraphSource source = Parse({path, "--from", "pipedream", "--profile-batch", "4"});
  EXPECT_EQ(source.import.profile_batch, 4);
  std::vector<std::string> warnings;
  EXPECT_EQ(LoadGraph(source, warnings).value().size(), 1);
  EXPECT_EQ(LoadSource(source).value().graph.nodes_size(), 1);
  std::filesystem::remove(path);
}

TEST(GraphSource, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(Parse({kGraph, "--from", "onnx"}), CLI::ValidationError);
  EXPECT_THROW(Parse({kGraph, "--profile-batch", "0"}), CLI::ValidationError);
  EXPECT_THROW(Parse({kGraph, "--time-unit", "h"}), CLI::ValidationError);
  EXPECT_EQ(Parse({kGraph, "--time-unit", "ms"}).import.piper_time_unit,
            ProfileTimeUnit::kMilliseconds);
}

}  // namespace
}  // namespace stagewright::cli
