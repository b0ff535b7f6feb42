// What a suffix of a linear order looks like from the prefix before it.
//
// Cut a topological order at position p. Of the prefix, only the vertices with a successor at or
// after p ("open") can see the suffix, and two open vertices with the same successors there see the
// same thing. A Frontier lists these classes for every p, and how the classes change from p + 1 to
// p. Searches that build stages from the end of the order keep one value per class instead of one
// per vertex: a branch in progress is one class, the exits of all finished branches another.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/dag.h"

namespace stagewright {

class Frontier {
 public:
  struct Class {
    int32_t first_successor;  // Nearest successor position, >= p.
    int32_t last_member;      // Largest member position, < p.
    int32_t parent;  // Its class at p + 1: what its members see beyond position p; -1: nothing.
  };

  // `dag` over the vertices `order` lists; `order` is topological. O(n^2 k) time for k classes.
  Frontier(const Dag& dag, const std::vector<int32_t>& order);

  int32_t size() const { return static_cast<int32_t>(classes_.size()) - 1; }
  // Classes at position p in [0, size()], in a fixed order. None at 0 and at size().
  const std::vector<Class>& At(int32_t p) const { return classes_[p]; }
  // Most classes at any position.
  int32_t width() const;

 private:
  std::vector<std::vector<Class>> classes_;
};

}  // namespace stagewright
