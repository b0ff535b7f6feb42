// Programs as text, a line per thing, that round-trips: for golden files, logs and bug reports.
//
//   program 1
//   batch samples=4 training=1
//   stage 0 nodes=0-5,9 replicated=- devices=0 micro_batch=2 backward=1
//   stage 1 nodes=6-8 replicated=- devices=1 micro_batch=2 backward=1
//   channel 0 stages=0>1 devices=0>1 values=5.0 gradients=5.0 bytes=64/64 backward=1
//   device 0 resident=4096
//   body:
//   0 F0[0,2) +214 -14
//   1 SA0[0,2)@0 <0
//   2 RG0[0,2)@0 <0
//
// An action line is its index, the action (`F0[0,2)`: forward of stage 0 for samples 0 and 1; `@0`:
// over channel 0, or for collectives reduction 0), `<` what it waits for, `+` bytes acquired at its
// start, `-` bytes released at its end. It waits for the end of an action, given by its index, or
// for a mark of it: `<7^3` is when backward pass 7 has made all gradients of its stage's nodes from
// the fourth on (PassMark). Kinds: `F` forward, `B` backward, `I` and `W` its halves for inputs and
// weights, `R` recompute, `SA` `RA` `SG` `RG` send and receive activation and gradient, `AR`
// all-reduce, `OS` optimizer step (`OS1@4`: of what the reductions of stage 1 up to 4 sum), `RS`
// and `AG` reduce-scatter and all-gather of a reduction with `sharded=1`, `RS1[0,2)@0` the
// reduce-scatter of one micro-batch, with `each_pass=1`. Values are `node.output`, bytes per sample
// are activation/gradient. `version_lag=` of a stage: how many updates older than the newest the
// weights of its forward passes are (asynchronous programs with vertical sync).
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/program/program.h"

namespace stagewright {

// O(actions).
std::string ToText(const Program& program);

// The inverse. INVALID_ARGUMENT names the line; indices are not checked (check_ids.h).
absl::StatusOr<Program> ParseProgram(const std::string& text);

}  // namespace stagewright
