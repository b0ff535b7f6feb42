#include "clients/cli/view/table.h"

#include <gtest/gtest.h>

namespace stagewright::cli {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({"stage", ">memory", "device"});
  table.Add({"[0]", "512.0 MiB", "gpu0"});
  table.Add({"[10] x", "1 B", ""});
  EXPECT_EQ(table.ToString(),
            "stage      memory  device\n"
            "[0]     512.0 MiB  gpu0\n"
            "[10] x        1 B\n");
}

TEST(Table, CountsCharactersAndNotBytes) {
  Table table({"a", "b"});
  table.Add({"\u00e9\u2500", "1"});
  table.Add({"xyz", "2"});
  EXPECT_EQ(table.ToString(), "a    b\n\u00e9\u2500   1\nxyz  2\n");
}

TEST(Table, IsItsHeaderWithoutRows) { EXPECT_EQ(Table({"a", ">b"}).ToString(), "a  b\n"); }

}  // namespace
}  // namespace stagewright::cli
