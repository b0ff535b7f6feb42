#include "planner_service/registry/link_table.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

bool IsRate(double value) { return std::isfinite(value) && value > 0; }

std::string Describe(const v1::Register& worker) {
  std::string text = absl::StrCat(worker.host_address(), ", ", worker.devices_size(), " devices");
  for (const v1::DeviceKind& kind : worker.kinds()) absl::StrAppend(&text, ", ", kind.name());
  return text;
}

}  // namespace

void Meet(const v1::Register& worker, LinkTable& table) {
  std::string& known = table.workers[worker.worker()];
  std::string now = Describe(worker);
  const bool is_another = known != now;
  known = std::move(now);
  std::erase_if(table.links, [&](const auto& entry) {
    const auto& [ends, figure] = entry;
    const bool own = ends.first == worker.worker() || ends.second == worker.worker();
    return own && (is_another || !figure.ok());
  });
  std::erase_if(table.crowds, [&](const auto& entry) {
    return entry.first.host_address == worker.host_address() && !entry.second.ok();
  });
}

const CrowdFigure* Find(const LinkTable& table, const Crowd& crowd) {
  for (auto it = table.crowds.upper_bound({crowd.host_address, crowd.devices, INT32_MAX});
       it != table.crowds.begin();) {
    --it;
    if (it->first.host_address != crowd.host_address) return nullptr;
    if (it->first.threads_per_device == crowd.threads_per_device && it->second.ok())
      return &it->second;
  }
  return nullptr;
}

v1::MeasuredLinks ToProto(const LinkTable& table) {
  v1::MeasuredLinks proto;
  for (const auto& [ends, figure] : table.links) {
    v1::LinkFigure* link = proto.add_links();
    link->set_from(ends.first);
    link->set_to(ends.second);
    link->set_latency_ns(figure.latency.count());
    link->set_bytes_per_second(figure.bytes_per_second);
    if (figure.ok()) link->set_measured_seconds(absl::ToUnixSeconds(figure.measured));
    link->set_failure(figure.failure);
  }
  for (const auto& [of, figure] : table.crowds) {
    v1::CrowdFigure* crowd = proto.add_crowds();
    crowd->set_host_address(of.host_address);
    crowd->set_devices(of.devices);
    crowd->set_threads_per_device(of.threads_per_device);
    crowd->set_product_ns(figure.product.count());
    crowd->set_copy_ns(figure.copy.count());
    crowd->set_latency_ns(figure.latency.count());
    crowd->set_bytes_per_second(figure.bytes_per_second);
    if (figure.ok()) crowd->set_measured_seconds(absl::ToUnixSeconds(figure.measured));
    crowd->set_failure(figure.failure);
  }
  proto.mutable_workers()->insert(table.workers.begin(), table.workers.end());
  return proto;
}

LinkTable FromProto(const v1::MeasuredLinks& proto) {
  LinkTable table;
  for (const v1::LinkFigure& link : proto.links()) {
    if (!link.failure().empty()) continue;
    if (link.latency_ns() < 0 || !IsRate(link.bytes_per_second())) continue;
    table.links[{link.from(), link.to()}] = {Nanos(link.latency_ns()), link.bytes_per_second(),
                                             absl::FromUnixSeconds(link.measured_seconds()), ""};
  }
  for (const v1::CrowdFigure& crowd : proto.crowds()) {
    const bool alone = crowd.devices() == 1;
    if (!crowd.failure().empty() || crowd.product_ns() <= 0 || crowd.copy_ns() <= 0) continue;
    if (crowd.latency_ns() < 0 || !(alone || IsRate(crowd.bytes_per_second()))) continue;
    table.crowds[{crowd.host_address(), crowd.devices(), crowd.threads_per_device()}] = {
        Nanos(crowd.product_ns()),
        Nanos(crowd.copy_ns()),
        Nanos(crowd.latency_ns()),
        crowd.bytes_per_second(),
        absl::FromUnixSeconds(crowd.measured_seconds()),
        ""};
  }
  table.workers.insert(proto.workers().begin(), proto.workers().end());
  return table;
}

}  // namespace stagewright
