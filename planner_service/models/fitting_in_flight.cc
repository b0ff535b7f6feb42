#include "planner_service/models/fitting_in_flight.h"

namespace stagewright {

int64_t FittingInFlight(const StageOracle& oracle, int32_t begin, int32_t end,
                        const StageOracle::Flow& flow, Bytes memory) {
  StageOracle::Flow tried = flow;
  int64_t fits = 0;
  int64_t too_many = flow.micro_batches + 1;
  while (fits + 1 < too_many) {
    tried.micro_batches_in_flight = (fits + too_many) / 2;
    (oracle.Memory(begin, end, tried) <= memory ? fits : too_many) = tried.micro_batches_in_flight;
  }
  return fits;
}

}  // namespace stagewright
