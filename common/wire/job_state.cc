#include "common/wire/job_state.h"

#include "absl/strings/ascii.h"

namespace stagewright {

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string JobStateName(v1::JobState state) {
  return absl::AsciiStrToLower(v1::JobState_Name(state).substr(std::string("JOB_STATE_").size()));
}

}  // namespace stagewright
