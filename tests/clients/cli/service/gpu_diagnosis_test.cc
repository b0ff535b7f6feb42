#include "clients/cli/service/gpu_diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two machines with a worker for each of their two GPUs, as they should be.
v1::ListWorkersResponse Machines() {
  v1::ListWorkersResponse workers;
  for (const char* host : {"a", "b"}) {
    for (int i = 0; i < 2; ++i) {
      v1::Worker& worker = *workers.add_workers();
      worker.set_name(std::string(host) + "-gpu" + std::to_string(i));
      worker.set_address(host);
      v1::GpuMachine& machine = *worker.mutable_gpu_machine();
      machine.set_driver_version("580.82.07");
      machine.set_driver_cuda(13000);
      machine.set_runtime_cuda(13000);
      machine.set_nccl(22809);
      for (int g = 0; g < 2; ++g) {
        v1::Gpu& gpu = *machine.add_gpus();
        gpu.set_uuid(std::string("GPU-") + host + std::to_string(g));
        gpu.set_clock_mhz(1900);
        gpu.set_highest_clock_mhz(1980);
      }
    }
  }
  return workers;
}

void ExpectSays(const Finding& finding, Verdict verdict, const std::string& detail) {
  EXPECT_EQ(finding.verdict, verdict) << finding.detail;
  EXPECT_THAT(finding.detail, HasSubstr(detail));
  EXPECT_EQ(finding.advice.empty(), verdict == Verdict::kGood) << finding.advice;
}

TEST(GpuDiagnosis, WithoutGpusNothingIsLookedAt) {
  v1::ListWorkersResponse workers;
  workers.add_workers()->set_name("w0");
  EXPECT_THAT(CheckGpus(workers), IsEmpty());
}

TEST(GpuDiagnosis, GoodMachinesAreSaidToBe) {
  const std::vector<Finding> findings = CheckGpus(Machines());
  ASSERT_EQ(findings.size(), 4u);
  for (const Finding& finding : findings) EXPECT_EQ(finding.verdict, Verdict::kGood);
  EXPECT_THAT(findings[0].detail, HasSubstr("580.82.07"));
  EXPECT_EQ(findings[1].detail, "2.28.9");
  EXPECT_THAT(findings[2].detail, HasSubstr("4 GPUs"));
}

TEST(GpuDiagnosis, ADriverMustRunTheWorkersCuda) {
  v1::ListWorkersResponse workers = Machines();
  v1::GpuMachine& machine = *workers.mutable_workers(2)->mutable_gpu_machine();
  machine.set_runtime_cuda(13020);
  ExpectSays(CheckGpuDrivers(workers), Verdict::kWarning,
             "b-gpu0: driver 580.82.07 runs CUDA 13.0, the worker has 13.2");
  machine.set_driver_cuda(12080);
  ExpectSays(CheckGpuDrivers(workers), Verdict::kBad, "runs CUDA 12.8");
  machine.set_runtime_cuda(0);  // It uses none.
  ExpectSays(CheckGpuDrivers(workers), Verdict::kGood, "580");
  machine.set_trouble("NVML: GPU 1's memory: GPU is lost");
  ExpectSays(CheckGpuDrivers(workers), Verdict::kBad, "b-gpu0: NVML: GPU 1's memory");
}

TEST(GpuDiagnosis, AMachineWhoseDriverIsGoneHasNoOtherFindings) {
  v1::ListWorkersResponse workers;
  workers.add_workers()->mutable_gpu_machine()->set_trouble("cannot load NVML");
  const std::vector<Finding> findings = CheckGpus(workers);
  ASSERT_EQ(findings.size(), 1u);
  ExpectSays(findings[0], Verdict::kBad, "cannot load NVML");
}

TEST(GpuDiagnosis, OneNcclForAll) {
  v1::ListWorkersResponse workers = Machines();
  workers.mutable_workers(3)->mutable_gpu_machine()->set_nccl(23007);
  ExpectSays(CheckNccl(workers), Verdict::kBad, "2.28.9 (a-gpu0, a-gpu1, b-gpu0); 2.30.7 (b-gpu1)");
}

TEST(GpuDiagnosis, GpusThatDoNotReachEachOtherAreNamedOnce) {
  v1::ListWorkersResponse workers = Machines();
  for (const int worker : {0, 1})
    workers.mutable_workers(worker)->mutable_gpu_machine()->mutable_gpus(0)->add_no_peer_access(1);
  const Finding finding = CheckPeerAccess(workers);
  ExpectSays(finding, Verdict::kWarning, "a GPU 0 to 1");
  EXPECT_EQ(finding.detail.find("a GPU 0 to 1"), finding.detail.rfind("a GPU 0 to 1"));
}

TEST(GpuDiagnosis, SlowGpusAreNamedWithTheReason) {
  v1::ListWorkersResponse workers = Machines();
  v1::Gpu& gpu = *workers.mutable_workers(2)->mutable_gpu_machine()->mutable_gpus(1);
  gpu.add_slowdowns(v1::GPU_SLOWDOWN_POWER_CAP);  // As any GPU that has enough to do.
  ExpectSays(CheckGpuClocks(workers), Verdict::kGood, "4");
  gpu.set_clock_mhz(990);
  Finding finding = CheckGpuClocks(workers);
  ExpectSays(finding, Verdict::kWarning, "b GPU 1 at 990 of 1980 MHz: power cap");
  EXPECT_THAT(finding.advice, AllOf(HasSubstr("-pl"), HasSubstr("-rgc")));
  gpu.add_slowdowns(v1::GPU_SLOWDOWN_HEAT);
  finding = CheckGpuClocks(workers);
  ExpectSays(finding, Verdict::kWarning, "power cap, heat");
  EXPECT_THAT(finding.advice, HasSubstr("cooling"));
}

}  // namespace
}  // namespace stagewright::cli
