#include "tile.h"

#include <utility>

namespace ct {
namespace CT_TIER {
namespace {

struct Tiles {
  TileFunction of[kTileVectors][kTileRows];
};

template <int... R>
constexpr Tiles all_tiles(std::integer_sequence<int, R...>) {
  return Tiles{{{tile<R + 1, 1>...}, {tile<R + 1, 2>...}}};
}

constexpr Tiles tiles = all_tiles(std::make_integer_sequence<int, kTileRows>());

}  // namespace

TileFunction tile_for(int rows, int vectors) { return tiles.of[vectors - 1][rows - 1]; }

}  // namespace CT_TIER
}  // namespace ct
