// Which files hold the samples of which input.
//
// A data path is one of
//   file.safetensors              one file with a tensor per input;
//   "x=a.npy,target=b.npy"        a file per input; ".npy" files hold one array, of ".safetensors"
//                                 ones the tensor named as the input is taken. A place of an input
//                                 may be a glob or a directory: its files are shards;
//   a glob, "train-*.safetensors" shards that each have all inputs;
//   a directory                   of ".safetensors" shards; or of one file `<input>.npy`, several
//                                 `<input>-*.npy` or a directory `<input>` of shards per input.
// Shards follow each other in the order of their names, byte by byte: together they are one data
// set. Files whose name starts with a dot are none.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

// The files with the samples of the input, in order; at least one. NOT_FOUND or INVALID_ARGUMENT
// names the path and the input. Looks at names only, never into files.
absl::StatusOr<std::vector<std::string>> DataFilesOf(const std::string& path,
                                                     const std::string& input);

}  // namespace stagewright
