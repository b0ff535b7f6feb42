// How planner and workers serve /metrics.
#pragma once

#include <string>
#include <vector>

namespace stagewright {

// Options of a prometheus::Exposer at `listen`, HOST:PORT. A slow reader holds up neither other
// readers nor, beyond five seconds, its thread.
std::vector<std::string> MetricsServerOptions(const std::string& listen);

// Where it listens: with the port that it `took` if that of `listen` is 0.
std::string MetricsAddress(const std::string& listen, int took);

}  // namespace stagewright
