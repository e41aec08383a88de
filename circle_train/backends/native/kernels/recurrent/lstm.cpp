// Sweeps of an LSTM, whose gates are in, keep, made and out.
#include "recurrent/sweep.h"

namespace ct {
namespace CT_TIER {
namespace {

void forward(const Part& p) {
  const ct_recurrent_args& t = p.t;
  p.start(t.h0, p.h);
  p.start(t.c0, p.c);
  for (int64_t number = 0; number < t.steps; ++number) {
    const int64_t step = p.step(number);
    for (int gate = 0; gate < 4; ++gate) p.recur(gate, step, p.h);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      float *const h = p.h + i * t.units, *const c = p.c + i * t.units;
      p.note(at, h);
      each_vector(t.units, [&](int64_t j, auto lanes) {
        const vf in = logistic(p.total(0, at, j, lanes)), keep = logistic(p.total(1, at, j, lanes));
        const vf made = tanh(p.total(2, at, j, lanes)), out = logistic(p.total(3, at, j, lanes));
        const vf cell = keep * load_some(c + j, lanes) + in * made;
        const vf y = out * tanh(cell);
        store_some(t.gate0 + at + j, in, lanes);
        store_some(t.gate1 + at + j, keep, lanes);
        store_some(t.gate2 + at + j, made, lanes);
        store_some(t.gate3 + at + j, out, lanes);
        store_some(c + j, cell, lanes);
        if (t.c) store_some(t.c + at + j, cell, lanes);
        store_some(h + j, y, lanes);
        if (t.y) store_some(t.y + seen_at + j, y, lanes);
      });
    }
  }
  p.finish(p.h, t.h1);
  p.finish(p.c, t.c1);
}

// c as the step found it: that of the step before, or the first.
const float* cell_before(const Part& p, int64_t number, int64_t i) {
  if (number > 0) return p.t.c + p.row(p.step(number - 1), i);
  return p.t.c0 ? p.t.c0 + (p.first + i) * p.t.units : nullptr;
}

void backward(const Part& p) {
  const ct_recurrent_args& t = p.t;
  p.start(t.h1, p.h);
  p.start(t.c1, p.c);
  for (int64_t number = t.steps - 1; number >= 0; --number) {
    const int64_t step = p.step(number);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      const float *const old = cell_before(p, number, i), *const dh = p.h + i * t.units;
      float* const dc = p.c + i * t.units;
      each_vector(t.units, [&](int64_t j, auto lanes) {
        const vf in = load_some(t.gate0 + at + j, lanes), keep = load_some(t.gate1 + at + j, lanes);
        const vf made = load_some(t.gate2 + at + j, lanes), out = load_some(t.gate3 + at + j, lanes);
        const vf d = given(t.dy, seen_at + j, lanes) + load_some(dh + j, lanes);
        const vf seen = tanh(load_some(t.c + at + j, lanes));
        const vf cell = load_some(dc + j, lanes) + d * out * (1.0f - seen * seen);
        const vf before = old ? load_some(old + j, lanes) : vf{};
        store_some(t.gate0 + at + j, cell * made * in * (1.0f - in), lanes);
        store_some(t.gate1 + at + j, cell * before * keep * (1.0f - keep), lanes);
        store_some(t.gate2 + at + j, cell * in * (1.0f - made * made), lanes);
        store_some(t.gate3 + at + j, d * seen * out * (1.0f - out), lanes);
        store_some(dc + j, cell * keep, lanes);
      });
    }
    p.start(nullptr, p.h);
    for (int gate = 0; gate < 4; ++gate) p.multiply(gate, p.gate(gate) + p.row(step, 0), t.sample_row * t.units, p.h);
  }
  p.finish(p.h, t.dh0);
  p.finish(p.c, t.dc0);
}

}  // namespace

int32_t lstm(Context& context, const void* opaque) { return sweep(context, opaque, true, forward); }
int32_t lstm_grad(Context& context, const void* opaque) { return sweep(context, opaque, false, backward); }

}  // namespace CT_TIER
}  // namespace ct
