// What a planner that follows tells the one that leads of who has called it: metadata of the calls
// that it passes on. It is believed only of a peer with a planner's certificate.
#pragma once

namespace stagewright {

// Metadata that callers give is theirs but for keys that begin so: those are taken out.
inline constexpr char kPlannersMetadata[] = "stagewright-";
inline constexpr char kCallerUri[] = "stagewright-caller-uri-bin";  // One for each that it has.
inline constexpr char kCallerPeer[] = "stagewright-caller-peer-bin";

}  // namespace stagewright
