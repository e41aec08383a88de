#include "conv/conv_cells.h"

#include <algorithm>

#include "conv/conv_shape.h"
#include "product/walk.h"
#include "update/optimizer.h"
#include "product/gemm.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kBlock = 40 << 10;  // weights that stay near while images pass
constexpr int64_t kNear = 44 << 10;   // bytes of images and dy that do while weights pass
constexpr int64_t kUnits = 12;
constexpr int64_t kFewPixels = 32;    // of an image: sums this short are better gathered into longer ones
constexpr int64_t kSets = 512;        // floats between pixels that meet in the same few cache sets

struct Plan {
  int64_t inputs, groups;   // channels of one group, and how many
  int64_t row, size;        // weights of one output, and of one group
  int64_t step;             // outputs of a tile
  int64_t outputs, blocks;  // of a block, and how many of all groups
  int64_t chunks;           // of each image, by whole output rows
  int64_t parts;            // each sums whole chunks
};

// A function of the problem alone.
Plan plan(const ct_conv_shape& all) {
  const ct_conv_shape s = one_group(all);
  Plan p;
  p.inputs = s.in_c, p.groups = all.groups;
  p.row = s.kernel_h * s.kernel_w * s.in_c, p.size = p.row * s.out_c;
  const int64_t high = ceil_div(s.out_c, kTileRows);
  p.step = ceil_div(s.out_c, high);
  const int64_t near = ceil_div(p.size, kBlock);
  p.outputs = near < kUnits / 2 ? ceil_div(high, near) * p.step : p.step;
  p.blocks = p.groups * ceil_div(s.out_c, p.outputs);
  const int64_t pixels = s.out_w * std::min(s.out_c, p.outputs) + s.stride_h * s.in_w * s.in_c;
  const int64_t above = (s.kernel_h - 1) * s.dilation_h * s.in_w * s.in_c;
  const int64_t rows = std::max<int64_t>(1, (kNear / int64_t(sizeof(float)) - above) / pixels);
  p.chunks = ceil_div(s.out_h, rows);
  const int64_t most = std::max<int64_t>(1, s.batch * p.chunks);
  p.parts = p.blocks < kUnits / 2 ? std::min(ceil_div(kUnits, p.blocks), most) : 1;
  return p;
}

// What a unit sums: some outputs' weights over some chunks.
struct Unit {
  int64_t part, group, m0, outputs;  // m0: of all groups' outputs
  float* c;  // lies as the weights
};

// c += the gradient from these rows of the image.
void add_chunk(const ct_conv_grad_w_args& t, const Plan& p, const Unit& u, int64_t image, Between rows) {
  const ct_conv_shape& s = t.shape;
  for (int64_t m = 0; m < u.outputs; m += p.step)
    for (int64_t cell = 0; cell < s.kernel_h * s.kernel_w; ++cell) {
      const int64_t h0 = cell / s.kernel_w * s.dilation_h - s.pad_top, w0 = cell % s.kernel_w * s.dilation_w - s.pad_left;
      const Between h = inside(rows, h0, s.stride_h, s.in_h), w = inside({0, s.out_w}, w0, s.stride_w, s.in_w);
      if (h.begin >= h.end || w.begin >= w.end) continue;
      const Walk walk{h.end - h.begin, w.end - w.begin, s.out_w * s.out_c, s.out_c, s.stride_h * s.in_w * s.in_c, s.stride_w * s.in_c};
      const float* const dy = t.dy + ((image * s.out_h + h.begin) * s.out_w + w.begin) * s.out_c + u.m0 + m;
      const float* const x = t.x + ((image * s.in_h + h.begin * s.stride_h + h0) * s.in_w + w.begin * s.stride_w + w0) * s.in_c + u.group * p.inputs;
      float* const c = u.c + m * p.row + cell * p.inputs;
      const int height = int(std::min(p.step, u.outputs - m));
      for (int64_t n = 0; n < p.inputs; n += kTileCols) walk_tile(height, p.inputs - n > W ? 2 : 1)(dy, x + n, walk, c + n, p.row);
    }
}

// The parts' sums from i on, in order, become the parameter's.
void finish(const ct_update& update, float* parts, int64_t count, int64_t stride, int64_t i, int64_t n) {
  each_vector(n, [&](int64_t j, auto lanes) {
    float* const at = parts + i + j;
    vf total = load_some(at, lanes);
    for (int64_t p = 1; p < count; ++p) total += load_some(at + p * stride, lanes);
    store_some(at, total, lanes);
  });
  apply_update(update, i, parts + i, n);
}

struct Sums {
  float* weights;  // of each part, or, with one part, of each worker's block
  float* biases;   // of each part
};

Sums carve(Carver& carver, const ct_conv_grad_w_args& t, const Plan& p, int workers) {
  Sums f;
  f.weights = carver.take<float>(p.parts > 1 ? p.parts * p.groups * p.size : workers * p.outputs * p.row);
  f.biases = carver.take<float>(p.parts * t.shape.out_c);
  return f;
}

void run_unit(const ct_conv_grad_w_args& t, const Plan& p, const Unit& u, float* biases) {
  const ct_conv_shape& s = t.shape;
  const int64_t chunks = s.batch * p.chunks;
  std::fill_n(u.c, u.outputs * p.row, 0.0f);
  if (biases) std::fill_n(biases, s.out_c, 0.0f);
  for (int64_t i = chunks * u.part / p.parts; i < chunks * (u.part + 1) / p.parts; ++i) {
    const int64_t image = i / p.chunks, chunk = i % p.chunks;
    const Between rows{s.out_h * chunk / p.chunks, s.out_h * (chunk + 1) / p.chunks};
    add_chunk(t, p, u, image, rows);
    const float* const dy = t.dy + (image * s.out_h + rows.begin) * s.out_w * s.out_c;
    if (biases) add_row_sums(dy, s.out_c, (rows.end - rows.begin) * s.out_w, s.out_c, biases);
  }
}

}  // namespace

bool suits_cells(const ct_conv_grad_w_args& t) {
  const ct_conv_shape& s = t.shape;
  const bool meets = s.stride_w * s.in_c % kSets == 0 || s.out_c % kSets == 0;
  const ct_conv_shape one = one_group(s);
  return t.has_w && !t.bf16 && one.in_c > 0 && one.out_c > 0 && one.in_c % W == 0 && !meets && s.out_h * s.out_w >= kFewPixels;
}

int64_t cells_scratch(const ct_conv_grad_w_args& t, int workers) {
  Carver carver(nullptr);
  carve(carver, t, plan(t.shape), workers);
  return carver.used();
}

void run_cells(Context& context, const ct_conv_grad_w_args& t) {
  const ct_conv_shape& s = t.shape;
  const Plan p = plan(s);
  Carver carver(context.scratch());
  const Sums f = carve(carver, t, p, context.workers());
  const int64_t size = p.groups * p.size, group_blocks = p.blocks / p.groups, outputs = s.out_c / p.groups;
  const double work = double(s.batch * s.out_h * s.out_w) * size / 100;
  context.parallel(p.parts * p.blocks, work, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i / p.blocks, group = i % p.blocks / group_blocks, within = i % group_blocks * p.outputs;
      const int64_t m0 = group * outputs + within;
      float* const c = f.weights + (p.parts > 1 ? part * size + m0 * p.row : worker * p.outputs * p.row);
      const Unit u{part, group, m0, std::min(p.outputs, outputs - within), c};
      run_unit(t, p, u, t.has_b && m0 == 0 ? f.biases + part * s.out_c : nullptr);
      if (p.parts == 1) apply_update(t.w, m0 * p.row, c, u.outputs * p.row);
    }
  });
  if (t.has_b) finish(t.b, f.biases, p.parts, s.out_c, 0, s.out_c);
  if (p.parts == 1) return;
  constexpr int64_t kPiece = 1024;
  context.parallel(ceil_div(size, kPiece), double(size) * (0.1 * p.parts + 0.3), [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin * kPiece; i < std::min(end * kPiece, size); i += kPiece)
      finish(t.w, f.weights, p.parts, size, i, std::min(kPiece, size - i));
  });
}

}  // namespace CT_TIER
}  // namespace ct
