// Our own profiles, made by code: GraphPipe's models, on which planners are compared with the
// published programs, and VGG, on which papers' statements are held, wherever the repository is.
//
// A device does 12 TFLOP/s and moves 700 GB/s, whichever takes longer, and starts an operator in 10
// us; a backward pass takes twice the forward pass. Micro-batches of 4 samples (MMT), 256
// (CANDLE-Uno, with four top layers of 4,096) and 16 (DLRM, likewise); float32.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace stagewright {

// In ascending order: "synthetic/candle7.graph.txt" in PipeDream's format and
// "synthetic/candle7.json" in Piper's; the same of dlrm7x7, mmt2_layer, mmt4_layer and mmt4_op,
// which has three operators a layer; and "synthetic/vgg16.graph.txt" and vgg19. Piper's have
// layers, and attention and the first product of a layer, that may recompute.
std::vector<std::string> SyntheticProfiles();

// The text of one of them; none if the name is another.
std::optional<std::string> SyntheticProfile(const std::string& name);

}  // namespace stagewright
