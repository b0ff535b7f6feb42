#include "planner_service/wire/sealed.h"

#include <gtest/gtest.h>

#include "common/artifacts/content_hash.h"
#include "stagewright/v1/graph.pb.h"

namespace stagewright {
namespace {

v1::Graph Net() {
  v1::Graph graph;
  graph.set_name("net");
  graph.add_nodes()->set_name("relu");
  return graph;
}

TEST(Sealed, IsTheMessageWithItsBytesAndTheirHash) {
  const Sealed<v1::Graph> graph(Net());
  ASSERT_TRUE(graph != nullptr);
  EXPECT_EQ(graph->nodes(0).name(), "relu");
  v1::Graph back;
  ASSERT_TRUE(back.ParseFromString(graph.seal()->bytes));
  EXPECT_EQ(back.SerializeAsString(), (*graph).SerializeAsString());
  EXPECT_EQ(graph.seal()->hash, ContentHash(graph.seal()->bytes));
  EXPECT_EQ(graph.seal()->hash, SealOf(Net()).hash);
}

TEST(Sealed, CopiesShareWhatWasMadeOnce) {
  const Sealed<v1::Graph> graph(Net());
  Sealed<v1::Graph> copy = graph;
  EXPECT_EQ(copy.seal(), graph.seal());
  EXPECT_EQ(&*copy, &*graph);
  copy.reset();
  EXPECT_TRUE(copy == nullptr);
  EXPECT_EQ(copy.seal(), nullptr);
  EXPECT_EQ(graph->name(), "net");
}

}  // namespace
}  // namespace stagewright
