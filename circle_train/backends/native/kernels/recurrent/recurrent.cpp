// Sweeps along time. What inputs and weight gradients cost is products over all steps at once, outside of here; a sweep has the
// recurrent product and the cell. Samples do not meet: each thread takes its own through all steps, and nobody waits.
#include <algorithm>

#include "product/pack.h"
#include "run/table.h"
#include "vectors/activation.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int kMostRows = 8;
constexpr int64_t kPanel = 2 * W;

// Samples that go together: as many as registers take, but so few that two threads have work.
int64_t rows_of(const ct_recurrent_args& t) {
  return t.samples >= 2 * kMostRows ? kMostRows : t.samples >= 8 ? 4 : t.samples >= 4 ? 2 : 1;
}

struct Memory {
  float* packed;  // R transposed, in panels of kPanel columns: for every gate [panel][units][kPanel]
  float* states;  // for every worker: h (or dh) and c (or dc), rows x units each
};

int64_t packed_of(const ct_recurrent_args& t) { return round_up(t.units, kPanel) * t.units; }
int64_t states_of(const ct_recurrent_args& t) { return round_up(3 * kMostRows * t.units, 16); }

Memory carve(Carver& carver, const ct_recurrent_args& t, int threads) {
  Memory m;
  m.packed = carver.take<float>(packed_of(t) * t.gates);
  m.states = carver.take<float>(states_of(t) * threads);
  return m;
}

const float* matrix(const ct_recurrent_args& t, int gate) {
  const float* const all[] = {t.r0, t.r1, t.r2, t.r3};
  return all[gate];
}

const float* bias(const ct_recurrent_args& t, int gate) {
  const float* const all[] = {t.bias0, t.bias1, t.bias2, t.bias3};
  return all[gate];
}

float* gate_rows(const ct_recurrent_args& t, int gate) {
  float* const all[] = {t.gate0, t.gate1, t.gate2, t.gate3};
  return all[gate];
}

// Panel by panel the columns of B with B(k, j) = turned ? r[j][k] : r[k][j].
void pack(Context& context, const ct_recurrent_args& t, const Memory& m, bool turned) {
  const int64_t n = t.units, panels = ceil_div(n, kPanel);
  context.parallel(panels * t.gates, double(n) * n * t.gates * 0.5, [&](int, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const float* const r = matrix(t, int(p / panels));
      const int64_t j0 = p % panels * kPanel, columns = std::min(kPanel, n - j0);
      float* const to = m.packed + p / panels * packed_of(t) + p % panels * kPanel * n;
      if (turned) pack_panel(r + j0 * n, 1, n, n, columns, kPanel, 1.0f, to);
      else pack_panel(r + j0, n, 1, n, columns, kPanel, 1.0f, to);
    }
  });
}

// out[i][j] += sum over k of a[i][k] B(k, j) for one gate; rows of a are `a_row` floats apart.
template <int Rows>
void add_product(const float* packed, int64_t n, const float* a, int64_t a_row, float* out, int64_t out_row) {
  for (int64_t j = 0; j < n; j += kPanel) {
    const float* b = packed + j * n;
    vf low[Rows], high[Rows];
    for (int i = 0; i < Rows; ++i) low[i] = vf{}, high[i] = vf{};
    for (int64_t k = 0; k < n; ++k, b += kPanel) {
      const vf b0 = load(b), b1 = load(b + W);
      for (int i = 0; i < Rows; ++i) {
        const float v = a[i * a_row + k];
        low[i] += v * b0;
        high[i] += v * b1;
      }
    }
    for (int i = 0; i < Rows; ++i) {
      float* const to = out + i * out_row + j;
      const int64_t left = n - j;
      if (left >= kPanel) {
        store(to, load(to) + low[i]);
        store(to + W, load(to + W) + high[i]);
        continue;
      }
      const int first = int(std::min<int64_t>(left, W)), second = int(left - first);
      store_some(to, load_some(to, first) + low[i], first);
      if (second > 0) store_some(to + W, load_some(to + W, second) + high[i], second);
    }
  }
}

void add_products(int64_t rows, const float* packed, int64_t n, const float* a, int64_t a_row, float* out, int64_t out_row) {
  while (rows > 0) {
    const int64_t some = rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    if (some == 8) add_product<8>(packed, n, a, a_row, out, out_row);
    if (some == 4) add_product<4>(packed, n, a, a_row, out, out_row);
    if (some == 2) add_product<2>(packed, n, a, a_row, out, out_row);
    if (some == 1) add_product<1>(packed, n, a, a_row, out, out_row);
    rows -= some, a += some * a_row, out += some * out_row;
  }
}

template <class Lanes>
vf given(const float* values, int64_t at, Lanes lanes) {
  return values ? load_some(values + at, lanes) : vf{};
}

// What a thread works on: `rows` samples from `first`, their state h (or its gradient) and c (or its gradient), and room.
struct Part {
  const ct_recurrent_args& t;
  const float* packed;
  float *h, *c, *room;
  int64_t first, rows;

  int64_t row(int64_t step, int64_t i) const { return (step * t.time_row + (first + i) * t.sample_row) * t.units; }
  int64_t y_row(int64_t step, int64_t i) const { return (step * t.y_time_row + (first + i) * t.y_sample_row) * t.units; }
  int64_t step(int64_t number) const { return t.backwards ? t.steps - 1 - number : number; }
  // gate += R h, where a row of the gate lies.
  void recur(int gate, int64_t step, const float* state) const {
    add_products(rows, packed + gate * packed_of(t), t.units, state, t.units, gate_rows(t, gate) + row(step, 0),
                 t.sample_row * t.units);
  }
  // What the inputs and the state give a gate, and its bias.
  template <class Lanes>
  vf total(int gate, int64_t at, int64_t j, Lanes lanes) const {
    return given(bias(t, gate), j, lanes) + load_some(gate_rows(t, gate) + at + j, lanes);
  }
  // The states' rows of this step's gradients, times R.
  void recur_back(int gate, const float* dz, int64_t dz_row, float* to) const {
    add_products(rows, packed + gate * packed_of(t), t.units, dz, dz_row, to, t.units);
  }
  void start(const float* state, float* to) const {
    if (state) std::copy(state + first * t.units, state + (first + rows) * t.units, to);
    else std::fill(to, to + rows * t.units, 0.0f);
  }
  void finish(const float* from, float* state) const {
    if (state) std::copy(from, from + rows * t.units, state + first * t.units);
  }
};

template <class F>
int32_t sweep(Context& context, const void* opaque, bool turned, F each_part) {
  const auto& t = *static_cast<const ct_recurrent_args*>(opaque);
  Carver carver(context.scratch());
  const Memory m = carve(carver, t, context.workers());
  pack(context, t, m, turned);
  const int64_t rows = rows_of(t);
  const double work = double(t.steps) * t.samples * t.units * (t.units * t.gates * 0.05 + 10);
  context.parallel(ceil_div(t.samples, rows), work, [&](int worker, int64_t begin, int64_t end) {
    float* const states = m.states + worker * states_of(t);
    for (int64_t u = begin; u < end; ++u) {
      const int64_t size = kMostRows * t.units;
      each_part(Part{t, m.packed, states, states + size, states + 2 * size, u * rows, std::min(rows, t.samples - u * rows)});
    }
  });
  return CT_OK;
}

void note(const Part& p, int64_t at, const float* h) {
  if (p.t.before) std::copy(h, h + p.t.units, p.t.before + at);
}

void lstm_part(const Part& p) {
  const ct_recurrent_args& t = p.t;
  p.start(t.h0, p.h);
  p.start(t.c0, p.c);
  for (int64_t number = 0; number < t.steps; ++number) {
    const int64_t step = p.step(number);
    for (int gate = 0; gate < 4; ++gate) p.recur(gate, step, p.h);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      float *const h = p.h + i * t.units, *const c = p.c + i * t.units;
      note(p, at, h);
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

void lstm_back(const Part& p) {
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
    for (int gate = 0; gate < 4; ++gate) p.recur_back(gate, gate_rows(t, gate) + p.row(step, 0), t.sample_row * t.units, p.h);
  }
  p.finish(p.h, t.dh0);
  p.finish(p.c, t.dc0);
}

void gru_part(const Part& p) {
  const ct_recurrent_args& t = p.t;
  p.start(t.h0, p.h);
  for (int64_t number = 0; number < t.steps; ++number) {
    const int64_t step = p.step(number);
    p.recur(0, step, p.h);
    p.recur(1, step, p.h);
    p.start(nullptr, p.room);
    add_products(p.rows, p.packed + 2 * packed_of(t), t.units, p.h, t.units, p.room, t.units);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      float *const h = p.h + i * t.units, *const inner = p.room + i * t.units;
      note(p, at, h);
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

void gru_back(const Part& p) {
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
    p.recur_back(0, t.gate0 + at, apart, p.h);
    p.recur_back(1, t.gate1 + at, apart, p.h);
    p.recur_back(2, t.c + at, apart, p.h);
  }
  p.finish(p.h, t.dh0);
}

void rnn_part(const Part& p) {
  const ct_recurrent_args& t = p.t;
  const Clamp clamp = clamp_of(t.act);
  p.start(t.h0, p.h);
  for (int64_t number = 0; number < t.steps; ++number) {
    const int64_t step = p.step(number);
    p.recur(0, step, p.h);
    for (int64_t i = 0; i < p.rows; ++i) {
      const int64_t at = p.row(step, i), seen_at = p.y_row(step, i);
      float* const h = p.h + i * t.units;
      note(p, at, h);
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

void rnn_back(const Part& p) {
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
    p.recur_back(0, t.gate0 + p.row(step, 0), t.sample_row * t.units, p.h);
  }
  p.finish(p.h, t.dh0);
}

}  // namespace

int64_t recurrent_scratch(const void* opaque, int threads) {
  Carver carver(nullptr);
  carve(carver, *static_cast<const ct_recurrent_args*>(opaque), threads);
  return carver.used();
}

int32_t lstm(Context& context, const void* opaque) { return sweep(context, opaque, true, lstm_part); }
int32_t lstm_grad(Context& context, const void* opaque) { return sweep(context, opaque, false, lstm_back); }
int32_t gru(Context& context, const void* opaque) { return sweep(context, opaque, true, gru_part); }
int32_t gru_grad(Context& context, const void* opaque) { return sweep(context, opaque, false, gru_back); }
int32_t rnn(Context& context, const void* opaque) { return sweep(context, opaque, true, rnn_part); }
int32_t rnn_grad(Context& context, const void* opaque) { return sweep(context, opaque, false, rnn_back); }

}  // namespace CT_TIER
}  // namespace ct
