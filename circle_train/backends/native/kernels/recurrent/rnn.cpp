// Sweeps of a plain recurrence.
#include "recurrent/sweep.h"

namespace ct {
namespace CT_TIER {
namespace {

void forward(const Part& p) {
  const ct_recurrent_args& t = p.t;
  const Clamp clamp = clamp_of(t.act);
  p.start(t.h0, p.h);
  for (int64_t number = 0; number < t.steps; ++number) {
    const int64_t step = p.step(number);
    p.recur(0, step, p.h);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      float* const h = p.h + i * t.units;
      p.note(at, h);
      each_vector(t.units, [&](int64_t j, auto lanes) {
        const vf y = activate(p.total(0, at, j, lanes), clamp);
        store_some(t.gate0 + at + j, y, lanes);
        store_some(h + j, y, lanes);
        if (t.y) store_some(t.y + seen_at + j, y, lanes);
      });
    }
  }
  p.finish(p.h, t.h1);
}

void backward(const Part& p) {
  const ct_recurrent_args& t = p.t;
  const Clamp clamp = clamp_of(t.act);
  p.start(t.h1, p.h);
  for (int64_t number = t.steps - 1; number >= 0; --number) {
    const int64_t step = p.step(number);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      const float* const dh = p.h + i * t.units;
      each_vector(t.units, [&](int64_t j, auto lanes) {
        const vf d = given(t.dy, seen_at + j, lanes) + load_some(dh + j, lanes);
        store_some(t.gate0 + at + j, masked(d, load_some(t.gate0 + at + j, lanes), clamp), lanes);
      });
    }
    p.start(nullptr, p.h);
    p.multiply(0, t.gate0 + p.row(step, 0), t.sample_row * t.units, p.h);
  }
  p.finish(p.h, t.dh0);
}

}  // namespace

int32_t rnn(Context& context, const void* opaque) { return sweep(context, opaque, true, forward); }
int32_t rnn_grad(Context& context, const void* opaque) { return sweep(context, opaque, false, backward); }

}  // namespace CT_TIER
}  // namespace ct
