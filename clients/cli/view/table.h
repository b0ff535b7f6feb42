// Plain tables for people: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace stagewright::cli {

class Table {
 public:
  // A header that starts with '>' aligns its column to the right (the mark is not printed).
  explicit Table(std::vector<std::string> header);
  void Add(std::vector<std::string> row);  // As many cells as the header.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

}  // namespace stagewright::cli
