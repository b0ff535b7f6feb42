#include "planner_service/intake/message_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stagewright/v1/job_service.pb.h"

namespace stagewright {
namespace {

using Answer = MessageBudget::Answer;

// One MiB on the wire, 16 in memory, 32 for all.
constexpr size_t kLargest = size_t{1} << 20;

MessageBudget::Claim Take(MessageBudget& budget, const v1::SubmitJobRequest& request) {
  return budget.Take(v1::SubmitJobRequest::descriptor(), request.SerializeAsString());
}

// A little more than so many bytes in memory.
v1::SubmitJobRequest OfBytes(size_t bytes) {
  v1::SubmitJobRequest request;
  request.set_request_id(std::string(bytes, 'x'));
  return request;
}

TEST(MessageBudgetTest, OneMessageIsBounded) {
  MessageBudget budget(kLargest);
  v1::SubmitJobRequest request;
  for (int i = 0; i < 200'000; ++i) request.mutable_spec()->mutable_graph()->add_nodes();
  EXPECT_LT(request.ByteSizeLong(), kLargest);
  EXPECT_EQ(Take(budget, request).answer, Answer::kTooLarge);
  EXPECT_EQ(budget.held(), 0u);
}

TEST(MessageBudgetTest, AllThatAreHeldAreBounded) {
  MessageBudget budget(kLargest);
  const v1::SubmitJobRequest large = OfBytes(10 << 20);
  std::vector<size_t> held;
  MessageBudget::Claim claim;
  while ((claim = Take(budget, large)).answer == Answer::kTaken) held.push_back(claim.taken);
  EXPECT_EQ(claim.answer, Answer::kFull);
  EXPECT_EQ(held.size(), 2u);
  EXPECT_LE(budget.held(), budget.most() - budget.most() / 8);
  budget.GiveBack(held.back());
  EXPECT_EQ(Take(budget, large).answer, Answer::kTaken);
}

TEST(MessageBudgetTest, SmallOnesFindRoomBesideLargeOnes) {
  MessageBudget budget(kLargest);
  size_t most = budget.most() - budget.most() / 8;
  for (const size_t bytes : {size_t{15} << 20, most - (size_t{16} << 20)})
    EXPECT_EQ(Take(budget, OfBytes(bytes)).answer, Answer::kTaken);
  EXPECT_EQ(Take(budget, OfBytes(2 << 20)).answer, Answer::kFull);
  const MessageBudget::Claim small = Take(budget, OfBytes(512 << 10));
  EXPECT_EQ(small.answer, Answer::kTaken);
  EXPECT_GT(small.taken, size_t{512} << 10);
  // Small ones are bounded, too; the smallest are not counted.
  while (Take(budget, OfBytes(512 << 10)).answer == Answer::kTaken) {
  }
  EXPECT_LE(budget.held(), budget.most());
  const MessageBudget::Claim least = Take(budget, OfBytes(4000));
  EXPECT_EQ(least.answer, Answer::kTaken);
  EXPECT_EQ(least.taken, 0u);
}

}  // namespace
}  // namespace stagewright
