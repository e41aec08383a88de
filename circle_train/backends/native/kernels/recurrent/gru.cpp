// Sweeps of a GRU, whose gates are z, r and what is made; R is multiplied before r is.
#include "recurrent/sweep.h"

namespace ct {
namespace CT_TIER {
namespace {

void forward(const Part& p) {
  const ct_recurrent_args& t = p.t;
  p.start(t.h0, p.h);
  for (int64_t number = 0; number < t.steps; ++number) {
    const int64_t step = p.step(number);
    p.recur(0, step, p.h);
    p.recur(1, step, p.h);
    p.start(nullptr, p.room);
    p.multiply(2, p.h, t.units, p.room);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      float *const h = p.h + i * t.units, *const inner = p.room + i * t.units;
      p.note(at, h);
      each_vector(t.units, [&](int64_t j, auto lanes) {
        const vf z = logistic(p.total(0, at, j, lanes)), r = logistic(p.total(1, at, j, lanes));
        const vf n = load_some(inner + j, lanes) + given(t.bias2, j, lanes);
        const vf made = tanh(load_some(t.gate2 + at + j, lanes) + r * n);
        const vf y = z * load_some(h + j, lanes) + (1.0f - z) * made;
        store_some(t.gate0 + at + j, z, lanes);
        store_some(t.gate1 + at + j, r, lanes);
        store_some(t.gate2 + at + j, made, lanes);
        if (t.c) store_some(t.c + at + j, n, lanes);
        store_some(h + j, y, lanes);
        if (t.y) store_some(t.y + seen_at + j, y, lanes);
      });
    }
  }
  p.finish(p.h, t.h1);
}

void backward(const Part& p) {
  const ct_recurrent_args& t = p.t;
  p.start(t.h1, p.h);
  for (int64_t number = t.steps - 1; number >= 0; --number) {
    const int64_t step = p.step(number);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      float* const dh = p.h + i * t.units;
      each_vector(t.units, [&](int64_t j, auto lanes) {
        const vf z = load_some(t.gate0 + at + j, lanes), made = load_some(t.gate2 + at + j, lanes);
        const vf r = load_some(t.gate1 + at + j, lanes), inner = load_some(t.c + at + j, lanes);
        const vf d = given(t.dy, seen_at + j, lanes) + load_some(dh + j, lanes);
        const vf dn = d * (1.0f - z) * (1.0f - made * made);
        store_some(t.gate0 + at + j, d * (load_some(t.before + at + j, lanes) - made) * z * (1.0f - z), lanes);
        store_some(t.gate1 + at + j, dn * inner * r * (1.0f - r), lanes);
        store_some(t.gate2 + at + j, dn, lanes);
        store_some(t.c + at + j, dn * r, lanes);
        store_some(dh + j, d * z, lanes);
      });
    }
    const int64_t at = p.row(step, 0), apart = t.sample_row * t.units;
    p.multiply(0, t.gate0 + at, apart, p.h);
    p.multiply(1, t.gate1 + at, apart, p.h);
    p.multiply(2, t.c + at, apart, p.h);
  }
  p.finish(p.h, t.dh0);
}

}  // namespace

int32_t gru(Context& context, const void* opaque) { return sweep(context, opaque, true, forward); }
int32_t gru_grad(Context& context, const void* opaque) { return sweep(context, opaque, false, backward); }

}  // namespace CT_TIER
}  // namespace ct
