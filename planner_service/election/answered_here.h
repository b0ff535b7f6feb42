// Which calls a follower answers by itself.
#pragma once

#include "absl/strings/string_view.h"

namespace stagewright {

// Whether the answer to an RPC, "/stagewright.v1.PlannerService/Plan", depends on the request
// alone, and on measurements, which any planner reads in etcd. Planning questions bring their own
// cluster. What depends on workers and jobs that the leader knows, the leader answers.
bool FollowersAnswer(absl::string_view method);

}  // namespace stagewright
