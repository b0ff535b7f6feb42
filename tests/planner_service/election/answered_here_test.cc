#include "planner_service/election/answered_here.h"

#include <gtest/gtest.h>

#include "planner_service/access/roles.h"

namespace stagewright {
namespace {

TEST(FollowersAnswer, WhatDependsOnTheRequestAlone) {
  for (const char* method :
       {"Explain", "ListPlanners", "Plan", "PlanStream", "Simulate", "Validate"}) {
    const std::string name = std::string("/stagewright.v1.PlannerService/") + method;
    EXPECT_TRUE(FollowersAnswer(name)) << name;
    EXPECT_FALSE(Changes(name)) << name;
  }
}

TEST(FollowersAnswer, NothingThatTheLeaderAloneKnows) {
  for (const char* name :
       {"/stagewright.v1.PlannerService/GetServer", "/stagewright.v1.PlannerService/Plans",
        "/stagewright.v1.JobService/ListJobs", "/stagewright.v1.JobService/Plan",
        "/stagewright.v1.ProfileService/ExportProfiles", "/stagewright.v1.WorkerService/Connect",
        "/grpc.health.v1.Health/Check", "Plan", ""})
    EXPECT_FALSE(FollowersAnswer(name)) << name;
}

}  // namespace
}  // namespace stagewright
