#include "worker_daemon/transport/ucx/ucx_edge.h"

#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"

namespace stagewright::testing {
namespace {

const absl::Time kEarly = absl::FromUnixSeconds(1000);
const absl::Time kLate = absl::FromUnixSeconds(2000);

TEST(UcxEdgeTest, IsDueAtItsFirstTime) {
  const auto peer = MakeUcxWorker();
  const auto worker = MakeUcxWorker();
  UcxEdge edge;
  EXPECT_EQ(edge.due_at(), absl::InfiniteFuture());
  ASSERT_EQ(edge.endpoint.Open(*worker, peer->address(), [](ucs_status_t) {}), UCS_OK);
  edge.close_at = kLate;
  EXPECT_EQ(edge.due_at(), kLate);
  edge.abandon_at = kEarly;
  EXPECT_EQ(edge.due_at(), kEarly);
  edge.close_at = absl::InfinitePast();
  EXPECT_EQ(edge.due_at(), absl::InfinitePast());
  edge.endpoint.Close();
}

TEST(UcxEdgeTest, AClosedOneIsNotDueToBeClosed) {
  UcxEdge edge;
  edge.close_at = kEarly;
  EXPECT_EQ(edge.due_at(), absl::InfiniteFuture());
}

TEST(UcxEdgeTest, AnErrorIsDueAtOnce) {
  UcxEdge edge;
  edge.abandon_at = kEarly;
  edge.error = UCS_ERR_CONNECTION_RESET;
  EXPECT_EQ(edge.due_at(), absl::InfinitePast());
}

}  // namespace
}  // namespace stagewright::testing
