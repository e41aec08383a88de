// The gradient for the weights: the same bilinear form read the other way, dw = G^T (sum over tiles (A dy A^T) * (B^T x B)) G.
#include <algorithm>

#include "optimizer.h"
#include "tile.h"
#include "winograd.h"
#include "winograd_points.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kChunk = 1 << 19;    // floats of both operands' points that are made at a time,
constexpr int64_t kLeastTiles = 96;    // or so many tiles'
constexpr int64_t kSums = 5 << 19;     // floats of the sums that are kept between chunks
constexpr int64_t kGroup = 8;          // tiles of one unit of the transforms
constexpr int64_t kUnitCols = 64;      // inputs and ...
constexpr int64_t kUnitTiles = 4;      // ... register tiles of outputs of one unit of the products
constexpr int64_t kLeastUnits = 12;

// Units are a function of the problem alone.
struct Plan {
  Plan(const ct_conv_grad_w_args& t, int workers) : grid(t.shape), inputs(t.shape.in_c), outputs(t.shape.out_c) {
    v_row = spread_row(inputs);
    const int64_t all = kPoints * grid.count * (v_row + spread_row(outputs));
    // All tiles at once need no sums kept between chunks.
    const bool at_once = all <= kChunk + kPoints * inputs * outputs;
    const int64_t most = at_once ? grid.count : std::max(kLeastTiles, kChunk / (all / grid.count));
    chunks = ceil_div(grid.count, most);
    chunk = ceil_div(grid.count, chunks);
    const int64_t stages = chunks == 1 ? 1 : ceil_div(kPoints * round_up(inputs, W) * outputs, kSums);
    stage = round_up(ceil_div(outputs, stages), W);
    d_row = spread_row(stage);
    col_units = ceil_div(inputs, kUnitCols);
    unit_cols = round_up(ceil_div(inputs, col_units), W);
    const int64_t row_tiles = ceil_div(stage, kTileRows);
    int64_t tiles = kUnitTiles;
    while (tiles > 1 && ceil_div(row_tiles, tiles) * col_units < kLeastUnits) --tiles;
    row_units = ceil_div(row_tiles, tiles);
    unit_rows = ceil_div(stage, row_units);
    v_point = spread_point(chunk * v_row), d_point = spread_point(chunk * d_row), m_point = spread_point(unit_rows * unit_cols);
    zeros = round_up(std::max(inputs, outputs), 16);
    groups = ceil_div(chunk, kGroup);
    m_size = kPoints * m_point;
    shared = zeros + round_up(groups * outputs, 16) + kPoints * (v_point + d_point) + (chunks > 1 ? row_units * col_units * m_size : 0);
    own = (chunks > 1 ? 0 : m_size) + kTaps * kTaps * unit_cols;
    total = (shared + own * workers) * int64_t(sizeof(float)) + 64;
  }
  TileGrid grid;
  int64_t inputs, outputs, v_row, d_row;
  int64_t chunk, chunks;          // tiles
  int64_t stage;                  // outputs whose sums are made together
  int64_t unit_rows, row_units, unit_cols, col_units;
  int64_t v_point, d_point, m_point, m_size, zeros, groups, shared, own, total;
};

struct Buffers {
  Buffers(const Plan& plan, float* at) : zeros(at), sums(at + plan.zeros), v(sums + round_up(plan.groups * plan.outputs, 16)) {
    d = v + kPoints * plan.v_point;
    m = d + kPoints * plan.d_point;
  }
  float *zeros, *sums, *v, *d, *m;
};

// The part of the sum that is being made: tiles first..first+tiles, outputs o0..o0+outputs.
struct Part {
  int64_t first, tiles, o0, outputs;
  bool starts, ends;
};

// A tile of dy at all points, and its sum over the pixels to `sums`.
void gradient_to_points(const Plan& plan, const float* dy, int64_t tile, const Part& part, const Buffers& f, float* d, float* sums) {
  const ct_conv_shape& s = plan.grid.s;
  const TileGrid::Place at = plan.grid.at(tile);
  const float* from[kCells];
  plan.grid.pixels<kTileOut>(dy + at.n * s.out_h * s.out_w * s.out_c, s.out_h, s.out_w, s.out_c, at.h, at.w, f.zeros, from);
  each_vector(part.outputs, [&](int64_t j, auto lanes) {
    const int64_t o = part.o0 + j;
    vf total{};
    transform_square<OutputGradTransform>(
        [&](int r, int c) {
          const vf y = load_some(from[r * kTileOut + c] + o, lanes);
          total += y;
          return y;
        },
        [&](int r, int c, vf h) { store_some(d + (r * kTileIn + c) * plan.d_point + j, h, lanes); });
    store_some(sums + o, load_some(sums + o, lanes) + total, lanes);
  });
}

void to_points(Context& context, const ct_conv_grad_w_args& t, const Plan& plan, const Part& part, const Buffers& f) {
  context.parallel(ceil_div(part.tiles, kGroup), double(part.tiles) * (plan.inputs + plan.outputs) * 3, [&](int, int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      float* const sums = f.sums + g * plan.outputs;
      if (part.starts) zero_floats(sums + part.o0, part.outputs);
      for (int64_t i = g * kGroup; i < std::min((g + 1) * kGroup, part.tiles); ++i) {
        input_to_points(plan.grid, t.x, part.first + i, f.zeros, f.v + i * plan.v_row, plan.v_point);
        gradient_to_points(plan, t.dy, part.first + i, part, f, f.d + i * plan.d_row, sums);
      }
    }
  });
}

// m (+)= d^T v at every point, for one unit's outputs and inputs.
void multiply(const Plan& plan, const Part& part, const float* d, const float* v, int64_t rows, int64_t cols, float* m) {
  const int64_t parts = ceil_div(rows, kTileRows);
  for (int64_t p = 0; p < kPoints; ++p)
    for (int64_t c = 0; c < cols; c += kTileCols)
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = rows * i / parts, count = rows * (i + 1) / parts - first;
        const TileEnd end{m + p * plan.m_point + first * plan.unit_cols + c, plan.unit_cols, nullptr, 0, 0, !part.starts, false, false};
        tile_for(int(count), cols - c > W ? 2 : 1)(d + p * plan.d_point + first, 1, plan.d_row, v + p * plan.v_point + c, plan.v_row, part.tiles, end);
      }
}

// One output's gradients for inputs c0..c0+cols, from the points to the weights.
void deliver(const ct_conv_grad_w_args& t, const Plan& plan, const float* m, int64_t o, int64_t c0, int64_t cols, float* taps) {
  for (int64_t j = 0; j < cols; j += W)
    transform_square<WeightGradTransform>([&](int r, int c) { return load(m + (r * kTileIn + c) * plan.m_point + j); },
                                          [&](int r, int c, vf g) { store(taps + (r * kTaps + c) * plan.unit_cols + j, g); });
  for (int64_t tap = 0; tap < kTaps * kTaps; ++tap)
    apply_update(t.w, (o * kTaps * kTaps + tap) * plan.inputs + c0, taps + tap * plan.unit_cols, cols);
}

void add_products(Context& context, const ct_conv_grad_w_args& t, const Plan& plan, const Part& part, const Buffers& f, float* mine) {
  const double work = double(part.tiles) * plan.inputs * part.outputs * kPoints / 60;
  context.parallel(plan.row_units * plan.col_units, work, [&](int worker, int64_t begin, int64_t end) {
    float* const own = mine + worker * plan.own;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t r0 = unit / plan.col_units * plan.unit_rows, rows = std::min(plan.unit_rows, part.outputs - r0);
      const int64_t c0 = unit % plan.col_units * plan.unit_cols, cols = std::min(plan.unit_cols, plan.inputs - c0);
      float *const m = plan.chunks > 1 ? f.m + unit * plan.m_size : own, *const taps = own + plan.own - kTaps * kTaps * plan.unit_cols;
      if (rows <= 0 || cols <= 0) continue;
      multiply(plan, part, f.d + r0, f.v + c0, rows, cols, m);
      if (!part.ends) continue;
      for (int64_t i = 0; i < rows; ++i) deliver(t, plan, m + i * plan.unit_cols, part.o0 + r0 + i, c0, cols, taps);
    }
  });
}

// sums[0] = their total, in order.
void add_groups(const Plan& plan, float* sums) {
  each_vector(plan.outputs, [&](int64_t o, auto lanes) {
    vf total{};
    for (int64_t g = 0; g < plan.groups; ++g) total += load_some(sums + g * plan.outputs + o, lanes);
    store_some(sums + o, total, lanes);
  });
}

}  // namespace

int64_t winograd_scratch(const ct_conv_grad_w_args& t, int workers) { return Plan(t, workers).total; }

void run_winograd(Context& context, const ct_conv_grad_w_args& t) {
  const Plan plan(t, context.workers());
  Carver carver(context.scratch());
  const Buffers f(plan, carver.take<float>(plan.shared));
  float* const mine = carver.take<float>(plan.own * context.workers());
  zero_floats(f.zeros, plan.zeros);
  for (int64_t o0 = 0; o0 < plan.outputs; o0 += plan.stage)
    for (int64_t i = 0; i < plan.chunks; ++i) {
      const int64_t first = i * plan.chunk, tiles = std::min(plan.chunk, plan.grid.count - first);
      const Part part{first, tiles, o0, std::min(plan.stage, plan.outputs - o0), i == 0, i + 1 == plan.chunks};
      to_points(context, t, plan, part, f);
      add_products(context, t, plan, part, f, mine);
    }
  if (!t.has_b) return;
  add_groups(plan, f.sums);
  apply_update(t.b, 0, f.sums, plan.outputs);
}

}  // namespace CT_TIER
}  // namespace ct
