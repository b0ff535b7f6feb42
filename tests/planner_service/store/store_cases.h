// Every store there is, for the suite that all of them pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner_service/store/store.h"

namespace stagewright::testing {

// Where a store keeps its entries: a new, empty place each time, which goes with the object.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  // Opens what is there. One store is open at a time.
  virtual std::unique_ptr<Store> Open() = 0;
};

struct StoreCase {
  std::string name;
  std::unique_ptr<StorePlace> (*make)();
};

std::vector<StoreCase> AllStores();

}  // namespace stagewright::testing
