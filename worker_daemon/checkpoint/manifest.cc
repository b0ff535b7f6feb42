#include "worker_daemon/checkpoint/manifest.h"

#include <zlib.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/regular_file.h"

namespace stagewright {
namespace {

constexpr char kFormat[] = "stagewright-checkpoint";
constexpr int kVersion = 1;
constexpr size_t kLargest = size_t{256} << 20;  // A model of a million tensors has less.

std::string PathIn(const std::string& directory) {
  return (std::filesystem::path(directory) / kManifestName).string();
}

std::string Hex(uint64_t value) { return absl::StrCat(absl::Hex(value)); }

uint64_t FromHex(const nlohmann::json& json) {
  uint64_t value = 0;
  if (!absl::SimpleHexAtoi(json.get<std::string>(), &value))
    throw std::invalid_argument("not a hexadecimal number");
  return value;
}

// JSON's numbers may be broken or beyond 64 bits, which a cast would make any other.
int64_t Count(const nlohmann::json& json, int64_t most = std::numeric_limits<int64_t>::max()) {
  const bool large =
      json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(most);
  if (!json.is_number_integer() || large || json.get<int64_t>() < 0)
    throw std::invalid_argument(json.dump() + " is no number from 0 to " + std::to_string(most));
  return json.get<int64_t>();
}

uint64_t Seed(const nlohmann::json& json) {
  if (!json.is_number_unsigned())
    throw std::invalid_argument(json.dump() + " is no seed, a number from 0 to 2^64 - 1");
  return json.get<uint64_t>();
}

// A file may not lie outside of the checkpoint.
std::string PlainName(std::string name) {
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..")
    throw std::invalid_argument("\"" + name + "\" is no name of a file");
  return name;
}

Manifest Parse(const nlohmann::json& json) {
  if (json.at("format") != kFormat) throw std::invalid_argument("it is of another format");
  if (json.at("version") != kVersion) {
    throw std::invalid_argument("its version is " + json.at("version").dump() +
                                ", this program reads 1");
  }
  Manifest manifest;
  manifest.step = Count(json.at("step"));
  manifest.samples = Count(json.at("samples"));
  manifest.seed = Seed(json.at("seed"));
  manifest.shuffled = json.at("shuffled");
  manifest.optimizer = json.at("optimizer");
  manifest.graph = json.at("graph");
  manifest.graph_fingerprint = FromHex(json.at("graph_fingerprint"));
  if (json.contains("run")) manifest.run = json["run"];
  if (json.contains("generation")) manifest.generation = Count(json["generation"]);
  if (json.contains("evaluations")) {  // Not where nothing was evaluated.
    const nlohmann::json& evaluations = json["evaluations"];
    if (!evaluations.at("best_loss").is_null())
      manifest.evaluations.best_loss = evaluations["best_loss"];
    manifest.evaluations.since_best = Count(evaluations.at("since_best"));
  }
  for (const nlohmann::json& file : json.at("files")) {
    manifest.files.push_back({PlainName(file.at("name")), Count(file.at("bytes")),
                              static_cast<uint32_t>(FromHex(file.at("crc32")))});
  }
  manifest.weight_map = json.at("weight_map").get<std::map<std::string, std::string>>();
  manifest.optimizer_map = json.at("optimizer_map").get<std::map<std::string, std::string>>();
  manifest.aliases = json.at("aliases").get<std::map<std::string, std::string>>();
  if (json.contains("slices")) {  // Not where no operator was cut.
    for (const auto& [name, entry] : json["slices"].items()) {
      SlicedEntry& sliced = manifest.slices[name];
      sliced.dim =
          static_cast<int32_t>(Count(entry.at("dim"), std::numeric_limits<int32_t>::max()));
      sliced.slices = entry.at("slices").get<std::vector<std::string>>();
      if (sliced.slices.empty()) throw std::invalid_argument("\"" + name + "\" has no slices");
    }
  }
  return manifest;
}

}  // namespace

absl::Status WriteManifest(const std::string& directory, const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["step"] = manifest.step;
  json["samples"] = manifest.samples;
  json["seed"] = manifest.seed;
  json["shuffled"] = manifest.shuffled;
  json["optimizer"] = manifest.optimizer;
  json["graph"] = manifest.graph;
  json["graph_fingerprint"] = Hex(manifest.graph_fingerprint);
  if (!manifest.run.empty()) json["run"] = manifest.run;
  if (manifest.generation > 0) json["generation"] = manifest.generation;
  if (manifest.evaluations != EvaluationHistory()) {
    // JSON knows no infinity: nlohmann's dump writes null.
    json["evaluations"] = {{"best_loss", manifest.evaluations.best_loss},
                           {"since_best", manifest.evaluations.since_best}};
  }
  json["files"] = nlohmann::ordered_json::array();
  for (const CheckpointFile& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"crc32", Hex(file.crc32)}});
  }
  json["weight_map"] = manifest.weight_map;
  json["optimizer_map"] = manifest.optimizer_map;
  json["aliases"] = manifest.aliases;
  for (const auto& [name, sliced] : manifest.slices)
    json["slices"][name] = {{"dim", sliced.dim}, {"slices", sliced.slices}};
  const std::string text =
      json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return WriteAtomically(PathIn(directory), {std::as_bytes(std::span(text))});
}

absl::StatusOr<Manifest> ReadManifest(const std::string& directory) {
  const std::string path = PathIn(directory);
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kLargest));
  try {
    return Parse(nlohmann::json::parse(text));
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
}

absl::StatusOr<CheckpointFile> SumFile(const std::string& path) {
  CheckpointFile sum;
  sum.name = std::filesystem::path(path).filename().string();
  uLong crc = ::crc32(0, nullptr, 0);
  RETURN_IF_ERROR(ReadRegularFile(path, [&](std::span<const char> block) {
    crc =
        ::crc32(crc, reinterpret_cast<const Bytef*>(block.data()), static_cast<uInt>(block.size()));
    sum.bytes += static_cast<int64_t>(block.size());
  }));
  sum.crc32 = static_cast<uint32_t>(crc);
  return sum;
}

}  // namespace stagewright
