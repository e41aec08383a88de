// A part of an image, its cells unsigned and with the zeros around that its windows read, as the products want it.
#pragma once

#include <algorithm>

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

// A rectangle of outputs of one image.
struct Part {
  int64_t image, row, column, rows, columns;
};

// How the outputs are cut into parts, and what a part reads: a function of the shape alone.
struct Parts {
  static constexpr int64_t kOutputs = 96;
  static constexpr int64_t kCells = 1 << 16;

  explicit Parts(const ct_conv_shape& s) : shape(s) {
    column_parts = ceil_div(s.out_w, kOutputs);
    columns = ceil_div(s.out_w, std::max<int64_t>(column_parts, 1));
    rows = std::min(std::max<int64_t>(kOutputs / std::max<int64_t>(columns, 1), 1), s.out_h);
    while (rows > 1 && read_rows(rows) * pitch() > kCells) rows = ceil_div(rows, 2);
    while (columns > 1 && read_rows(rows) * pitch() > kCells) columns = ceil_div(columns, 2);
    column_parts = columns ? ceil_div(s.out_w, columns) : 0;
    row_parts = rows ? ceil_div(s.out_h, rows) : 0;
  }

  int64_t count() const { return shape.batch * row_parts * column_parts; }
  Part at(int64_t i) const {
    const int64_t column = i % column_parts * columns, row = i / column_parts % row_parts * rows;
    return {i / (row_parts * column_parts), row, column, std::min(rows, shape.out_h - row), std::min(columns, shape.out_w - column)};
  }
  int64_t read_rows(int64_t n) const { return (n - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation_h + 1; }
  int64_t read_columns() const { return (columns - 1) * shape.stride_w + (shape.kernel_w - 1) * shape.dilation_w + 1; }
  // Cells from one row to the next.
  int64_t pitch() const { return read_columns() * shape.in_c; }
  int64_t cells() const { return columns ? read_rows(rows) * pitch() : 0; }

  const ct_conv_shape& shape;
  int64_t rows, columns, row_parts, column_parts;
};

// Reads past a row's last cell come in fours, of cells as wide as int16.
constexpr int64_t kBeyond = 8;

template <class Cell>
inline void flipped(const uint8_t* x, int64_t n, int32_t flip, Cell* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = Cell(uint8_t(x[i] ^ flip));
}

template <class Cell>
inline void fill_part(const ct_int_conv_args& t, const Parts& parts, const Part& part, Cell* to) {
  const ct_conv_shape& s = t.shape;
  const int64_t top = part.row * s.stride_h - s.pad_top, left = part.column * s.stride_w - s.pad_left;
  const int64_t rows = parts.read_rows(part.rows), width = (part.columns - 1) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1;
  const int64_t first = std::min(std::max<int64_t>(-left, 0), width);
  const int64_t last = std::max(first, std::min(width, s.in_w - left));
  for (int64_t r = 0; r < rows; ++r, to += parts.pitch()) {
    const int64_t row = top + r;
    std::fill(to + width * s.in_c, to + width * s.in_c + kBeyond, Cell(0));
    if (row < 0 || row >= s.in_h) {
      std::fill(to, to + width * s.in_c, Cell(t.x_zero));
      continue;
    }
    const uint8_t* const x = t.x + ((part.image * s.in_h + row) * s.in_w + left) * s.in_c;
    std::fill(to, to + first * s.in_c, Cell(t.x_zero));
    flipped(x + first * s.in_c, (last - first) * s.in_c, t.x_flip, to + first * s.in_c);
    std::fill(to + last * s.in_c, to + width * s.in_c, Cell(t.x_zero));
  }
}

}  // namespace CT_TIER
}  // namespace ct
