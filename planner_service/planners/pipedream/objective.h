// What PipeDream minimises: the time of the slowest stage or transfer of a full pipeline.
//
// Free functions over plain numbers, so that a plan of any origin can be rated. All times are
// seconds per mini-batch of the profile, sizes bytes, bandwidths bytes per second.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/dag.h"

namespace stagewright::pipedream {

// T_l, a_l and w_l of the paper, by layer.
struct LayerProfile {
  Dag dag;                         // Layer v is vertex v.
  std::vector<double> seconds;     // T_l: forward and backward of one mini-batch on one machine.
  std::vector<double> output;      // a_l: bytes of the layer's output.
  std::vector<double> parameters;  // w_l: bytes of its trained parameters.

  int32_t size() const { return static_cast<int32_t>(seconds.size()); }
};

// Where the published program and the paper differ.
struct Rules {
  // A stage's compute and its weight synchronisation: in turn (the program) or overlapped, so that
  // only the larger counts (the paper).
  bool overlapped_sync = false;
  // The replicas of a stage share its input and, unless it is the first or the last stage, its
  // output (the program); the paper charges 2 C_i whoever receives it.
  bool divided_transfers = true;
  // In a hierarchy the first stage of a level synchronises over this many links at once while later
  // ones have a single link (the program's asymmetry). False: all have one.
  bool first_stage_has_all_links = true;
  // Synchronisations per mini-batch: 1 in asynchronous pipelines, a micro-batch's share of the
  // mini-batch where gradients are summed once per flush.
  double syncs = 1;
};
inline Rules RulesAsCoded() { return {}; }
inline Rules RulesOfThePaper() { return {true, false, false, 1}; }

// One level of a network: machines, and the bandwidth between any two of them. What is a machine to
// an outer level is the whole inner level.
struct Level {
  int32_t machines = 1;
  double bandwidth = 1;
};

// T(i -> j, m): `compute` is that of the whole stage, `links` those its synchronisation may use.
double StageSeconds(const Rules& rules, double compute, double parameters, int32_t replicas,
                    double bandwidth, double links = 1);

// Activations one way and gradients the other.
double TransferSeconds(const Rules& rules, double bytes, int32_t replicas, double bandwidth);

// NUM_OPT_ACTIVE_MINIBATCHES of a stage: mini-batches in flight, by the machines from it to the end
// and its own.
int64_t Noam(int32_t machines_to_the_end, int32_t replicas);

// A pipeline on one level; with several levels, each stage is a pipeline on the level below.
struct PlannedStage {
  std::vector<int32_t> layers;
  int32_t replicas = 1;
  std::vector<PlannedStage> inner;  // Empty on the innermost level.
};

// The slowest stage or transfer of `stages`, whose layers are a chain of downsets: level.size() - 1
// is the outermost. Independent of how the plan was found. O(layers * stages + edges).
double Objective(const LayerProfile& profile, const Rules& rules, const std::vector<Level>& levels,
                 const std::vector<PlannedStage>& stages);

}  // namespace stagewright::pipedream
