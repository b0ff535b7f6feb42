// The factor by which a loss in float16 is multiplied, so that small gradients do not vanish: as
// large as gradients allow. No LibTorch here.
//
// Gradients are divided by it before anything looks at them (gradient_norm.h). A step whose
// gradients are not finite updates nothing and makes the factor smaller; after enough good steps in
// a row it grows. The rule and its constants are those of torch.amp.GradScaler. All devices of a
// job see the same norm of all gradients, so each follows the rule by itself and all agree.
//
// Reference: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2.
#pragma once

#include <cstdint>

namespace stagewright {

struct LossScaleRule {
  double initial = 65536;
  double growth = 2;     // After `interval` good steps in a row.
  double backoff = 0.5;  // After a bad one.
  int64_t interval = 2000;
  // The loss itself is finite, and gradients are not although the factor has fallen to this: then
  // it is not the factor that spoils them.
  double least = 0x1p-24;
};

class LossScale {
 public:
  explicit LossScale(const LossScaleRule& rule = {}) : rule_(rule), value_(rule.initial) {}
  // Goes on from the state of another.
  LossScale(const LossScaleRule& rule, double value, int64_t good_steps)
      : rule_(rule), value_(value), good_steps_(good_steps) {}

  double value() const { return value_; }
  // Since the factor last changed.
  int64_t good_steps() const { return good_steps_; }
  // Whether making it smaller is no help any more.
  bool exhausted() const { return value_ <= rule_.least; }

  // After a step; `finite`: all its gradients were.
  void Update(bool finite);

 private:
  LossScaleRule rule_;
  double value_;
  int64_t good_steps_ = 0;
};

}  // namespace stagewright
