// How threads that only move messages get a core soon after they wake.
#pragma once

#include <cstdint>

namespace stagewright {

// Asks Linux to give the calling thread turns of a tenth of a millisecond instead of milliseconds.
// A thread with shorter turns is let in before one that computes (from Linux 6.12 on), and loses
// one short turn where it yields. Without it each hop of a message between two cores that compute
// can wait for a tick, 4 ms. Where the system does not know such turns, nothing changes.
void AskForShortTurns();

// How long a turn of the calling thread is; 0 where the system does not say.
uint64_t TurnNanos();

}  // namespace stagewright
