#include "tests/planner_service/store/store_cases.h"

#include <filesystem>

#include "common/base/check.h"
#include "planner_service/store/etcd/etcd_store.h"
#include "planner_service/store/sqlite_store.h"
#include "tests/planner_service/store/etcd/etcd_server.h"
#include "tests/planner_service/store/temporary_folder.h"

namespace stagewright::testing {
namespace {

class SqlitePlace : public StorePlace {
 public:
  std::unique_ptr<Store> Open() override {
    auto opened = OpenSqliteStore(folder_.path() / "state.db");
    CHECK(opened.ok());
    return std::move(opened->store);
  }

 private:
  const TemporaryFolder folder_;
};

class EtcdPlaceOfTest : public StorePlace {
 public:
  std::unique_ptr<Store> Open() override {
    const auto client =
        std::make_shared<EtcdClient>(EtcdPlace{{server_.endpoint()}, "/"}, absl::Seconds(60));
    auto store = OpenEtcdStore(client, "/stagewright", std::nullopt);
    CHECK(store.ok());
    return *std::move(store);
  }

 private:
  EtcdServer server_;
};

template <typename Place>
std::unique_ptr<StorePlace> Make() {
  return std::make_unique<Place>();
}

}  // namespace

std::vector<StoreCase> AllStores() {
  return {{"Sqlite", Make<SqlitePlace>}, {"Etcd", Make<EtcdPlaceOfTest>}};
}

}  // namespace stagewright::testing
