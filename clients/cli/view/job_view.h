// Jobs and workers for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

std::string JobsText(const v1::ListJobsResponse& jobs);
nlohmann::json JobJson(const v1::Job& job);
std::string WorkersText(const v1::ListWorkersResponse& workers);
nlohmann::json WorkersJson(const v1::ListWorkersResponse& workers);

// "[=====>    ] step 120/660  loss 0.1234  12.1 ms/step"
std::string ProgressLine(const v1::Job& job);
// What a finished job came to, over several lines.
std::string JobSummary(const v1::Job& job);
// What was asked for and where it ran, under a summary.
std::string SpecText(const v1::Job& job);
nlohmann::json SpecJson(const v1::JobSpec& spec);
// What the actions of its steps take beside what its plan predicts, those that differ most first;
// empty before they were measured.
std::string MeasurementText(const v1::Job& job);

}  // namespace stagewright::cli
