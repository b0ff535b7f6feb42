#include "planner_service/access/roles.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "stagewright/v1/job_service.pb.h"
#include "stagewright/v1/links.pb.h"
#include "stagewright/v1/planner_service.pb.h"
#include "stagewright/v1/profile.pb.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {
namespace {

TEST(Roles, HaveNames) {
  for (Role role : {Role::kViewer, Role::kSubmitter, Role::kOperator, Role::kWorker})
    EXPECT_EQ(RoleOf(RoleName(role)), role);
  EXPECT_FALSE(RoleOf("anybody").has_value());
  EXPECT_FALSE(RoleOf("").has_value());
  EXPECT_FALSE(RoleOf("Operator").has_value());
}

TEST(Roles, CoverWhatIsLess) {
  EXPECT_TRUE(Covers(Role::kOperator, Role::kSubmitter));
  EXPECT_TRUE(Covers(Role::kSubmitter, Role::kViewer));
  EXPECT_FALSE(Covers(Role::kViewer, Role::kSubmitter));
  EXPECT_FALSE(Covers(Role::kSubmitter, Role::kOperator));
  EXPECT_TRUE(Covers(Role::kWorker, Role::kWorker));
  EXPECT_FALSE(Covers(Role::kWorker, Role::kViewer));
  EXPECT_FALSE(Covers(Role::kOperator, Role::kWorker));
  EXPECT_TRUE(Covers(Role::kViewer, Role::kAnybody));
}

// A method that nobody has decided about is for operators, and counts as a change.
TEST(Roles, AreDecidedForEveryMethodOfEveryService) {
  int methods = 0;
  for (const google::protobuf::FileDescriptor* found :
       {v1::SubmitJobRequest::descriptor()->file(),
        v1::MeasureTopologyRequest::descriptor()->file(), v1::PlanRequest::descriptor()->file(),
        v1::ProfileGraphRequest::descriptor()->file(), v1::ConnectRequest::descriptor()->file()}) {
    ASSERT_GT(found->service_count(), 0) << found->name();
    for (int s = 0; s < found->service_count(); ++s) {
      for (int m = 0; m < found->service(s)->method_count(); ++m, ++methods) {
        const auto* method = found->service(s)->method(m);
        const std::string path =
            absl::StrCat("/", found->service(s)->full_name(), "/", method->name());
        EXPECT_TRUE(IsDecided(path)) << path << " is not in the table of roles.cc";
        EXPECT_NE(LeastRole(path), Role::kAnybody) << path;
      }
    }
  }
  EXPECT_GE(methods, 20);
  EXPECT_EQ(LeastRole("/stagewright.v1.JobService/NoSuch"), Role::kOperator);
  EXPECT_TRUE(Changes("/stagewright.v1.JobService/NoSuch"));
}

TEST(Roles, SayWhereServicesAreOffered) {
  EXPECT_TRUE(IsForWorkers("stagewright.v1.WorkerService"));
  EXPECT_FALSE(IsForWorkers("stagewright.v1.JobService"));
  EXPECT_FALSE(IsForWorkers("stagewright.v1.Worker"));
  EXPECT_FALSE(IsForWorkers("grpc.health.v1.Health"));
  // No service has methods for both.
  for (const google::protobuf::FileDescriptor* file :
       {v1::SubmitJobRequest::descriptor()->file(), v1::ConnectRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        const std::string path =
            absl::StrCat("/", service->full_name(), "/", service->method(m)->name());
        EXPECT_EQ(LeastRole(path) == Role::kWorker, IsForWorkers(service->full_name())) << path;
      }
    }
  }
}

TEST(Roles, KnowWhatChangesSomething) {
  EXPECT_TRUE(Changes("/stagewright.v1.JobService/CancelJob"));
  EXPECT_TRUE(Changes("/stagewright.v1.WorkerService/Connect"));
  EXPECT_FALSE(Changes("/stagewright.v1.JobService/GetJob"));
}

}  // namespace
}  // namespace stagewright
