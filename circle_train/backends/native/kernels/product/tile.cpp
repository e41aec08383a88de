#include "product/tile.h"

#include <utility>

namespace ct {
namespace CT_TIER {
namespace {

struct Tiles {
  TileFunction of[2][kTileVectors][kTileRows];
};

template <int... R>
constexpr Tiles all_tiles(std::integer_sequence<int, R...>) {
  return Tiles{{{{tile<R + 1, 1, false>...}, {tile<R + 1, 2, false>...}}, {{tile<R + 1, 1, true>...}, {tile<R + 1, 2, true>...}}}};
}

constexpr Tiles tiles = all_tiles(std::make_integer_sequence<int, kTileRows>());

}  // namespace

void finish_tail(const vf* sums, int rows, int vectors, const TileEnd& end) {
  const int tail = int(end.tail);
  if (!end.load_c && !end.y) {  // what happens to most, without many tests for each row
    const int64_t last = (vectors - 1) * W;
    const vf first_bias = end.bias && last ? load(end.bias) : vf{}, bias = end.bias ? load_some(end.bias + last, tail) : vf{};
    const vf low = splat(end.clamp ? end.low : -__builtin_inff()), high = splat(end.clamp ? end.high : __builtin_inff());
    const float* add = end.add;
    float* c = end.c;
    for (int r = 0; r < rows; ++r, c += end.c_row, add += end.add ? end.c_row : 0) {
      if (last) {
        const vf v = *sums++ + first_bias;
        store(c, at_most(at_least(end.add ? v + load(add) : v, low), high));
      }
      const vf v = *sums++ + bias;
      store_some(c + last, at_most(at_least(end.add ? v + load_some(add + last, tail) : v, low), high), tail);
    }
    return;
  }
  for (int r = 0; r < rows; ++r, sums += vectors) {
    const int64_t at = r * end.c_row, last = (vectors - 1) * W;
    if (vectors > 1) finish_vector(sums[0], end, at, 0, true, Whole());
    finish_vector(sums[vectors - 1], end, at + last, last, true, tail);
  }
}

TileFunction tile_for(int rows, int vectors, bool more) { return tiles.of[more][vectors - 1][rows - 1]; }

}  // namespace CT_TIER
}  // namespace ct
