#include "worker_daemon/transport/ucx/ucx_endpoint.h"

#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"

namespace stagewright::testing {
namespace {

TEST(UcxEndpointTest, KnowsWhetherItGoesOverTcp) {
  for (const bool tcp : {false, true}) {
    const std::string tls = tcp ? "tcp,self" : "posix,self";
    const auto peer = MakeUcxWorker(tls);
    const auto worker = MakeUcxWorker(tls);
    UcxEndpoint endpoint;
    EXPECT_FALSE(endpoint.is_open());
    ASSERT_EQ(endpoint.Open(*worker, peer->address(), [](ucs_status_t) {}), UCS_OK);
    EXPECT_TRUE(endpoint.is_open());
    EXPECT_EQ(endpoint.over_tcp(), tcp);
    endpoint.Close();
    EXPECT_FALSE(endpoint.is_open());
    EXPECT_EQ(endpoint.get(), nullptr);
  }
}

TEST(UcxEndpointTest, TellsThatTheConnectionBroke) {
  auto peer = MakeUcxWorker("tcp,self");
  const auto worker = MakeUcxWorker("tcp,self");
  ucs_status_t error = UCS_OK;
  UcxEndpoint endpoint;
  ASSERT_EQ(endpoint.Open(*worker, peer->address(), [&](ucs_status_t status) { error = status; }),
            UCS_OK);
  char byte = 'a';
  ucp_request_param_t param = {};
  ucs_status_ptr_t request = ucp_tag_send_nbx(endpoint.get(), &byte, 1, 1, &param);
  const auto sent = [&] {
    return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
  };
  ASSERT_TRUE(StepUntil([&] { Progress({worker.get(), peer.get()}); }, sent));
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  peer.reset();
  EXPECT_TRUE(StepUntil([&] { Progress({worker.get()}); }, [&] { return error != UCS_OK; }));
  endpoint.Close();
}

}  // namespace
}  // namespace stagewright::testing
