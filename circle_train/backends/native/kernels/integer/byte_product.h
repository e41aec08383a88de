// An implicit product of bytes over parts of the image; what becomes of the sums, where they arise, is the caller's.
#pragma once

#include <algorithm>

#include "integer/dot_tile.h"
#include "integer/window.h"

namespace ct {
namespace CT_TIER {

constexpr int64_t kByteUnits = 8;  // so many at least, if there are panels enough

// A pointwise convolution is one long row.
inline ct_conv_shape flattened(ct_conv_shape s) {
  const bool is_pointwise = s.kernel_h * s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_top == 0 &&
                            s.pad_left == 0 && s.out_h == s.in_h && s.out_w == s.in_w;
  if (!is_pointwise) return s;
  s.in_w = s.out_w = s.batch * s.in_h * s.in_w;
  s.batch = s.in_h = s.out_h = s.in_w > 0;
  return s;
}

// Of int16 every byte is a cell.
inline ct_conv_shape in_cells(ct_conv_shape s, bool of_shorts) {
  s.in_c *= of_shorts ? int64_t(sizeof(int16_t)) : 1;
  return s;
}

struct BytePlan {
  explicit BytePlan(const ct_int_conv_args& args)
      : t(args), shape(in_cells(flattened(args.shape), args.shift)), parts(shape), tiles(args.shift ? short_tiles() : dot_tiles()) {
    const bool lies_together = shape.dilation_w == 1 && shape.groups == 1;
    each = shape.in_c / shape.groups;
    run_count = shape.kernel_h * (lies_together ? 1 : shape.kernel_w);
    run = each * (lies_together ? shape.kernel_w : 1);
    cell_bytes = t.shift ? 1 : tiles.cell_bytes;
    fours = ceil_div(run, t.shift ? 4 * int64_t(sizeof(int16_t)) : 4);
    outputs = shape.out_c / shape.groups;
    group_panels = ceil_div(outputs, CT_INT_PANEL);
    w_panel = run_count * fours * 4 * CT_INT_PANEL;
    const int64_t blocks = ceil_div(group_panels, tiles.panels) * shape.groups, wanted = ceil_div(kByteUnits, std::max<int64_t>(parts.count(), 1));
    shares = std::max<int64_t>(1, std::min(wanted, blocks));
    share = ceil_div(blocks, shares);
    shares = share ? ceil_div(blocks, share) : 0;
  }
  int64_t cells_bytes() const { return round_up((parts.cells() + kBeyond) * cell_bytes, CT_ALIGNMENT); }
  int64_t outputs_of_part() const { return parts.rows * parts.columns; }

  const ct_int_conv_args& t;
  const ct_conv_shape shape;
  const Parts parts;
  const DotTiles& tiles;
  int64_t cell_bytes, each, run_count, run, fours, outputs, group_panels, w_panel;
  int64_t shares, share;  // how blocks of panels are dealt out, and how many to each
};

struct ByteMemory {
  ByteMemory(Carver& carver, const BytePlan& plan)
      : cells(carver.take<char>(plan.cells_bytes())), runs(carver.take<int64_t>(plan.run_count)), sums(carver.take<int32_t>(plan.outputs_of_part())) {}
  char* cells;
  int64_t* runs;
  int32_t* sums;
};

template <class Cell>
int32_t sum_of(const Cell* x, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

// Sums that may leave 32 bits, in pieces that certainly do not: several runs, or a part of one.
inline void add_products(const DotTile& tile, DotTileFunction run, int64_t size, int64_t* sums) {
  alignas(CT_ALIGNMENT) int32_t part[kDotRows * kDotPanels * CT_INT_PANEL];
  const int64_t fours = std::min(tile.fours, kShortFours), runs = std::max<int64_t>(1, kShortFours / std::max<int64_t>(tile.fours, 1));
  std::fill(sums, sums + size, 0);
  for (int64_t first = 0; first < tile.run_count; first += runs)
    for (int64_t four = 0; four < tile.fours; four += fours) {
      DotTile piece = tile;
      piece.x += four * 4 * int64_t(sizeof(int16_t)), piece.w += (first * tile.fours + four) * 4 * CT_INT_PANEL;
      piece.runs += first, piece.run_count = std::min(runs, tile.run_count - first), piece.fours = std::min(fours, tile.fours - four);
      piece.sums = part;
      run(piece);
      for (int64_t i = 0; i < size; ++i) sums[i] += part[i];
    }
}

// finish(sums, place, channels, output, channel, less): sums of outputs whose bias and the like begin at `place`; `less` is the
// weights' zero times the cells. Of int16 the sums are int64_t. finish.zero(output) is what stands for 0 beside the image.
template <class Finish>
class ByteWorker {
 public:
  ByteWorker(const BytePlan& plan, const ByteMemory& memory, const Finish& finish) : p_(plan), m_(memory), finish_(finish) {}

  void run(int64_t begin, int64_t end) {
    int64_t held = -1;
    for (int64_t unit = begin; unit < end; ++unit) {
      if (unit / p_.shares != held) hold(held = unit / p_.shares);
      const int64_t blocks = ceil_div(p_.group_panels, p_.tiles.panels), first = unit % p_.shares * p_.share;
      for (int64_t b = first; b < std::min(first + p_.share, blocks * p_.shape.groups); ++b) {
        const int64_t panel = b % blocks * p_.tiles.panels;
        multiply(b / blocks, panel, int(std::min<int64_t>(p_.tiles.panels, p_.group_panels - panel)));
      }
    }
  }

 private:
  void hold(int64_t index) {
    part_ = p_.parts.at(index);
    if (p_.cell_bytes == 1)
      fill<uint8_t>();
    else
      fill<uint16_t>();
  }

  template <class Cell>
  void fill() {
    Cell* const cells = reinterpret_cast<Cell*>(m_.cells);
    fill_part(flat(), p_.parts, part_, cells);
    if (p_.t.w_zero) add_up(cells);
  }

  ct_int_conv_args flat() const {
    ct_int_conv_args t = p_.t;
    t.shape = p_.shape;
    t.x_zero = finish_.zero(output_at(0, 0));
    return t;
  }

  // Cells from a window's begin to one of its runs, of the first group.
  int64_t offset(int64_t run) const {
    const ct_conv_shape& s = p_.shape;
    const int64_t across = p_.run_count / s.kernel_h;
    return run / across * s.dilation_h * p_.parts.pitch() + run % across * s.dilation_w * s.in_c;
  }

  // With groups every group would have sums of its own: the binder gives no w_zero then.
  template <class Cell>
  void add_up(const Cell* cells) {
    for (int64_t r = 0, i = 0; r < part_.rows; ++r)
      for (int64_t c = 0; c < part_.columns; ++c, ++i) {
        const Cell* const window = cells + window_at(r, c);
        m_.sums[i] = 0;
        for (int64_t run = 0; run < p_.run_count; ++run) m_.sums[i] += sum_of(window + offset(run), p_.run);
      }
  }

  int64_t window_at(int64_t row, int64_t column) const {
    return row * p_.shape.stride_h * p_.parts.pitch() + column * p_.shape.stride_w * p_.shape.in_c;
  }

  int64_t output_at(int64_t row, int64_t column) const {
    return (part_.image * p_.shape.out_h + part_.row + row) * p_.shape.out_w + part_.column + column;
  }

  void multiply(int64_t group, int64_t panel, int panels) {
    const ct_conv_shape& s = p_.shape;
    const int64_t first = group * p_.group_panels + panel, bytes = p_.cell_bytes;
    for (int64_t run = 0; run < p_.run_count; ++run) m_.runs[run] = (offset(run) + group * p_.each) * bytes;
    alignas(CT_ALIGNMENT) int64_t wide[kDotRows * kDotPanels * CT_INT_PANEL];
    int32_t* const sums = reinterpret_cast<int32_t*>(wide);
    const int64_t size = p_.t.shift ? 2 : 1;  // of a sum, in 32 bits
    const int64_t most = p_.tiles.rows[panels - 1], pieces = ceil_div(part_.columns, most), few = ceil_div(part_.columns, pieces);
    const int64_t channel = group * p_.outputs + panel * CT_INT_PANEL, channels = std::min<int64_t>(panels * CT_INT_PANEL, p_.outputs - panel * CT_INT_PANEL);
    DotTile tile{nullptr, s.stride_w * s.in_c * bytes, m_.runs, p_.run_count, p_.fours, p_.t.w + first * p_.w_panel, p_.w_panel, sums};
    for (int64_t r = 0; r < part_.rows; ++r)
      for (int64_t c = 0; c < part_.columns; c += few) {
        const int64_t count = std::min(few, part_.columns - c);
        tile.x = m_.cells + window_at(r, c) * bytes;
        if (p_.t.shift)
          add_products(tile, p_.tiles.of[panels - 1][count - 1], count * panels * CT_INT_PANEL, wide);
        else
          p_.tiles.of[panels - 1][count - 1](tile);
        for (int64_t i = 0; i < count; ++i) {
          const int32_t less = p_.t.w_zero ? p_.t.w_zero * m_.sums[r * part_.columns + c + i] : 0;
          finish_(sums + i * panels * CT_INT_PANEL * size, first * CT_INT_PANEL, channels, output_at(r, c) + i, channel, less);
        }
      }
  }

  const BytePlan& p_;
  const ByteMemory& m_;
  const Finish& finish_;
  Part part_{};
};

inline int64_t byte_memory(const BytePlan& plan) {
  Carver carver(nullptr);
  ByteMemory memory(carver, plan);
  return carver.used();
}

// scratch: byte_memory(plan) for each worker.
template <class Finish>
void multiply_bytes(Context& context, const BytePlan& plan, char* scratch, const Finish& finish) {
  const ct_conv_shape& s = plan.shape;
  const int64_t bytes = byte_memory(plan);
  const double products = double(s.batch * s.out_h * s.out_w) * double(s.out_c) * double(plan.run_count * plan.run);
  context.parallel(plan.parts.count() * plan.shares, products / 100, [&](int worker, int64_t begin, int64_t end) {
    Carver carver(scratch + worker * bytes);
    const ByteMemory memory(carver, plan);
    ByteWorker<Finish>(plan, memory, finish).run(begin, end);
  });
}

}  // namespace CT_TIER
}  // namespace ct
