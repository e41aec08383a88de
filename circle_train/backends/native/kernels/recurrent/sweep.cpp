// How samples are shared among threads, and the recurrent product.
#include "recurrent/sweep.h"

#include "product/pack.h"

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

}  // namespace

float* Part::gate(int number) const {
  float* const all[] = {t.gate0, t.gate1, t.gate2, t.gate3};
  return all[number];
}

const float* Part::bias(int gate) const {
  const float* const all[] = {t.bias0, t.bias1, t.bias2, t.bias3};
  return all[gate];
}

void Part::recur(int number, int64_t step, const float* state) const {
  add_products(rows, packed + number * packed_of(t), t.units, state, t.units, gate(number) + row(step, 0),
               t.sample_row * t.units);
}

void Part::multiply(int gate, const float* a, int64_t a_row, float* to) const {
  add_products(rows, packed + gate * packed_of(t), t.units, a, a_row, to, t.units);
}

void Part::start(const float* state, float* to) const {
  if (state) std::copy(state + first * t.units, state + (first + rows) * t.units, to);
  else std::fill(to, to + rows * t.units, 0.0f);
}

void Part::finish(const float* from, float* state) const {
  if (state) std::copy(from, from + rows * t.units, state + first * t.units);
}

void Part::note(int64_t at, const float* state) const {
  if (t.before) std::copy(state, state + t.units, t.before + at);
}

int32_t sweep(Context& context, const void* opaque, bool turned, void (*each_part)(const Part&)) {
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

int64_t recurrent_scratch(const void* opaque, int threads) {
  Carver carver(nullptr);
  carve(carver, *static_cast<const ct_recurrent_args*>(opaque), threads);
  return carver.used();
}

}  // namespace CT_TIER
}  // namespace ct
