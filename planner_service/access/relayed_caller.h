// What a planner that follows tells the one that leads of who has called it: metadata of the calls
// that it passes on. It is believed only of a peer with a planner's certificate.
#pragma once

namespace stagewright {

// What callers themselves say under these keys is not passed on.
inline constexpr char kCallerUri[] = "stagewright-caller-uri-bin";  // One for each that it has.
inline constexpr char kCallerPeer[] = "stagewright-caller-peer-bin";

}  // namespace stagewright
