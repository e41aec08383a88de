// Forward, and with the kernel turned round the gradient for the input.
#include "winograd/winograd.h"

#include <algorithm>

#include "product/pack.h"
#include "product/tile.h"
#include "winograd/winograd_points.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kSharedWeights = 1 << 20;  // floats of all weights' points, up to which they are made once for all workers
constexpr int64_t kDepth = 128;              // inputs of a block of weights made by the one who uses them
constexpr int64_t kLeastUnits = 8;           // of tiles, if they then still have
constexpr int64_t kLeastTiles = 6;           // so many
constexpr int64_t kLeastChannels = 12;
constexpr int64_t kChunk = 2 << 20;          // floats of input points that all workers share
constexpr int64_t kTapFloats = kTaps * kTaps * W * kTileCols;
constexpr int64_t kSupposedBatch = 4;
constexpr double kWeightCost = 192;          // of transforming one weight, in products
constexpr int64_t kFewTiles = 16;            // beside whose products that is felt

// Units are a function of the problem alone.
struct Plan {
  explicit Plan(const WinogradConv& t, int workers)
      : grid(t.shape), inputs(t.shape.in_c), outputs(t.shape.out_c), panels(ceil_div(outputs, kTileCols)), v_row(spread_row(inputs)) {
    shares_weights = kPoints * inputs * panels * kTileCols <= kSharedWeights;
    depth = shares_weights ? inputs : std::min(inputs, kDepth);
    u_point = spread_point(depth * kTileCols);
    const int64_t most = shares_weights ? std::max<int64_t>(kTileRows, std::min<int64_t>(4 * kTileRows, 3600 / v_row))
                                        : std::max<int64_t>(4 * kTileRows, kChunk / (kPoints * v_row));
    blocks = ceil_div(grid.count, most);
    if (shares_weights) blocks = round_up(std::max(blocks, std::min(kLeastUnits, ceil_div(grid.count, kLeastTiles))), 2);
    block = ceil_div(grid.count, blocks);
    blocks = ceil_div(grid.count, block);
    v_point = spread_point(block * v_row);
    m_point = spread_point(block * kTileCols);
    zeros = round_up(inputs, 16);
    u_size = kPoints * u_point, v_size = kPoints * v_point + round_up(block, 16), m_size = kPoints * m_point;
    shared = zeros + (shares_weights ? panels * u_size : v_size);
    own = m_size + (shares_weights ? v_size : u_size) + kTapFloats;
    total = (shared + own * workers) * int64_t(sizeof(float)) + 64;
  }
  TileGrid grid;
  int64_t inputs, outputs, panels, v_row;
  bool shares_weights;
  int64_t depth;                 // inputs of one block of weights
  int64_t block, blocks;         // tiles of one block
  int64_t u_point, v_point, m_point;
  int64_t zeros, u_size, v_size, m_size, shared, own, total;

  // Of each tile of the block whose points are in v, the outputs with empty windows.
  uint32_t* empty(float* v) const { return reinterpret_cast<uint32_t*>(v + kPoints * v_point); }
  int64_t width(int64_t panel) const { return panel_width(outputs, panel * kTileCols); }
  int64_t cols(int64_t panel) const { return std::min<int64_t>(kTileCols, outputs - panel * kTileCols); }
  // What units cost in nanoseconds, roughly.
  double work() const { return double(grid.count) * inputs * outputs * kPoints / 60; }
};

// One panel's weights at all points, inputs k0..k0+kc: u[p*u_point + k*width + output].
void weights_to_points(const WinogradConv& t, const Plan& plan, int64_t panel, int64_t k0, int64_t kc, float* taps, float* u) {
  const int64_t n0 = panel * kTileCols, cols = plan.cols(panel), width = plan.width(panel), cells = kTaps * kTaps;
  for (int64_t k = 0; k < kc; k += W) {
    const int64_t count = std::min<int64_t>(W, kc - k);
    for (int64_t tap = 0; tap < cells; ++tap) {
      if (t.turned) {
        pack_panel(t.w + ((k0 + k) * cells + cells - 1 - tap) * plan.outputs + n0, cells * plan.outputs, 1, count, cols, width, 1, taps + tap * W * width);
      } else {
        pack_panel(t.w + (n0 * cells + tap) * plan.inputs + k0 + k, 1, cells * plan.inputs, count, cols, width, 1, taps + tap * W * width);
      }
    }
    for (int64_t i = 0; i < count * width; i += W) {
      transform_square<WeightTransform>([&](int r, int c) { return load(taps + (r * kTaps + c) * W * width + i); },
                                        [&](int r, int c, vf h) { store(u + (r * kTileIn + c) * plan.u_point + k * width + i, h); });
    }
  }
}

// m (+)= v u at every point, for the tiles of one block and the columns of one panel.
void multiply(const Plan& plan, const float* v, int64_t tiles, const float* u, int64_t panel, int64_t kc, bool more, float* m) {
  const int64_t width = plan.width(panel), parts = ceil_div(tiles, kTileRows);
  for (int64_t p = 0; p < kPoints; ++p) {
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = tiles * part / parts, rows = tiles * (part + 1) / parts - first;
      const TileEnd end{m + p * plan.m_point + first * width, width, nullptr, 0, 0, more, false, false};
      tile_for(int(rows), int(width / W))(v + p * plan.v_point + first * plan.v_row, plan.v_row, 1, u + p * plan.u_point, width, kc, end);
    }
  }
}

// What follows the sums, and where it goes.
struct Ending {
  explicit Ending(const WinogradConv& conv) : t(conv), act(clamp_of(unbent(conv.act))), mask(clamp_of(conv.out_mask_act)) {}
  const WinogradConv& t;
  Clamp act, mask;

  template <class Lanes>
  void put(int64_t at, vf v, Lanes lanes) const {
    if (t.add) v += load_some(t.add + at, lanes);
    if (t.accumulate) v += load_some(t.y + at, lanes);
    if (t.act != CT_ACT_NONE) v = at_most(at_least(v, splat(act.low)), splat(act.high));
    if (t.out_mask) v = masked(v, load_some(t.out_mask + at, lanes), mask);
    store_some(t.y + at, v, lanes);
  }
};

// One tile's columns of a panel back from the points to the image.
void points_to_output(const Plan& plan, const Ending& ending, int64_t tile, int64_t panel, const float* m, uint32_t empty) {
  const ct_conv_shape& s = plan.grid.s;
  const TileGrid::Place at = plan.grid.at(tile);
  const int64_t n0 = panel * kTileCols, first = ((at.n * s.out_h + at.h) * s.out_w + at.w) * s.out_c + n0;
  const int64_t rows = std::min<int64_t>(kTileOut, s.out_h - at.h), cols = std::min<int64_t>(kTileOut, s.out_w - at.w);
  each_vector(plan.cols(panel), [&](int64_t j, auto lanes) {
    const vf bias = ending.t.bias ? load_some(ending.t.bias + n0 + j, lanes) : vf{};
    transform_square<OutputTransform>(
        [&](int r, int c) { return load(m + (r * kTileIn + c) * plan.m_point + j); },
        [&](int r, int c, vf y) {
          if (r >= rows || c >= cols) return;
          if (empty >> (r * kTileIn + c) & 1) y = vf{};
          ending.put(first + (r * s.out_w + c) * s.out_c + j, y + bias, lanes);
        });
  });
  for (int64_t r = 0; r < rows && is_curve(ending.t.act); ++r)
    bend(ending.t.act, ending.t.y + first + r * s.out_w * s.out_c, cols, plan.cols(panel), s.out_c);
}

void finish_block(const Plan& plan, const Ending& ending, int64_t first, int64_t tiles, int64_t panel, const float* m,
                  const uint32_t* empty) {
  for (int64_t i = 0; i < tiles; ++i) points_to_output(plan, ending, first + i, panel, m + i * plan.width(panel), empty[i]);
}

// Few weights: their points are made once, then each worker takes blocks of tiles from input to output.
void run_by_tiles(Context& context, const WinogradConv& t, const Plan& plan, float* zeros, float* mine) {
  float* const made = zeros + plan.zeros;
  const float* const u = t.panels ? t.panels : made;
  const Ending ending(t);
  context.parallel(t.panels ? 0 : plan.panels, double(plan.inputs) * plan.outputs * 2, [&](int worker, int64_t begin, int64_t end) {
    float* const taps = mine + worker * plan.own + plan.m_size + plan.v_size;
    for (int64_t panel = begin; panel < end; ++panel) weights_to_points(t, plan, panel, 0, plan.inputs, taps, made + panel * plan.u_size);
  });
  context.parallel(plan.blocks, plan.work(), [&](int worker, int64_t begin, int64_t end) {
    float *const m = mine + worker * plan.own, *const v = m + plan.m_size;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * plan.block, tiles = std::min(plan.block, plan.grid.count - first);
      for (int64_t tile = 0; tile < tiles; ++tile)
        plan.empty(v)[tile] = input_to_points(plan.grid, t.x, first + tile, zeros, v + tile * plan.v_row, plan.v_point);
      for (int64_t panel = 0; panel < plan.panels; ++panel) {
        multiply(plan, v, tiles, u + panel * plan.u_size, panel, plan.inputs, false, m);
        finish_block(plan, ending, first, tiles, panel, m, plan.empty(v));
      }
    }
  });
}

// Many weights: the input's points are made for all, then each worker takes panels of outputs.
void run_by_panels(Context& context, const WinogradConv& t, const Plan& plan, float* zeros, float* mine) {
  float* const v = zeros + plan.zeros;
  const Ending ending(t);
  for (int64_t first = 0; first < plan.grid.count; first += plan.block) {
    const int64_t tiles = std::min(plan.block, plan.grid.count - first);
    context.parallel(tiles, double(tiles) * plan.inputs * 3, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        plan.empty(v)[i] = input_to_points(plan.grid, t.x, first + i, zeros, v + i * plan.v_row, plan.v_point);
    });
    context.parallel(plan.panels, plan.work() / plan.blocks, [&](int worker, int64_t begin, int64_t end) {
      float *const m = mine + worker * plan.own, *const u = m + plan.m_size, *const taps = u + plan.u_size;
      for (int64_t panel = begin; panel < end; ++panel) {
        for (int64_t k = 0; k < plan.inputs; k += plan.depth) {
          const int64_t kc = std::min(plan.depth, plan.inputs - k);
          weights_to_points(t, plan, panel, k, kc, taps, u);
          multiply(plan, v + k, tiles, u, panel, kc, k > 0, m);
        }
        finish_block(plan, ending, first, tiles, panel, m, plan.empty(v));
      }
    });
  }
}

}  // namespace

bool suits_winograd(const ct_conv_shape& s) {
  if (s.kernel_h != kTaps || s.kernel_w != kTaps || s.stride_h != 1 || s.stride_w != 1 || s.dilation_h != 1 || s.dilation_w != 1)
    return false;
  if (s.groups != 1 || s.in_c < kLeastChannels || s.out_c < kLeastChannels) return false;
  const double tiles = double(kSupposedBatch * ceil_div(s.out_h, kTileOut) * ceil_div(s.out_w, kTileOut)), pixels = double(kSupposedBatch * s.out_h * s.out_w);
  const double products = 1.3 * kPoints * tiles, transforms = tiles * 224 * (1.0 / s.in_c + 1.0 / s.out_c) + kWeightCost;
  return products + transforms < 0.9 * kTaps * kTaps * pixels;
}

int64_t winograd_scratch(const WinogradConv& t, int workers) { return Plan(t, workers).total; }

int64_t winograd_panel_bytes(const WinogradConv& t) {
  const Plan plan(t, 1);
  if (!plan.shares_weights || plan.grid.count >= kFewTiles) return 0;
  return (plan.panels * plan.u_size + kTapFloats) * int64_t(sizeof(float));
}

void keep_winograd_panels(const WinogradConv& t, float* panels) {
  const Plan plan(t, 1);
  float* const taps = panels + plan.panels * plan.u_size;
  for (int64_t panel = 0; panel < plan.panels; ++panel) weights_to_points(t, plan, panel, 0, plan.inputs, taps, panels + panel * plan.u_size);
}

void run_winograd(Context& context, const WinogradConv& t) {
  const Plan plan(t, context.workers());
  Carver carver(context.scratch());
  float* const zeros = carver.take<float>(plan.shared);
  float* const mine = carver.take<float>(plan.own * context.workers());
  zero_floats(zeros, plan.zeros);
  if (plan.shares_weights) {
    run_by_tiles(context, t, plan, zeros, mine);
  } else {
    run_by_panels(context, t, plan, zeros, mine);
  }
}

}  // namespace CT_TIER
}  // namespace ct
