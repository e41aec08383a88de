"""How features are prepared."""

from __future__ import annotations

from math import prod

import numpy as np

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.handlers.learned.scores import ML, numbers
from circle_train.ir import DType, Tensor


@handles("ZipMap", domain=ML)
def zip_map(c: Call) -> Tensor:
    """A column for each class, as before the names were put to them."""
    return c[0]


@handles("Scaler", domain=ML)
def scaler(c: Call) -> Tensor:
    b = c.b
    x = b.cast(c[0], DType.FLOAT32)
    return b("MUL", b("SUB", x, b.like(x, numbers(c, "offset"))), b.like(x, numbers(c, "scale")))


@handles("Normalizer", domain=ML)
def normalizer(c: Call) -> Tensor:
    """Each row by its norm; rows of zeros stay."""
    b, norm = c.b, c.attr("norm", "MAX")
    x = b.cast(c[0], DType.FLOAT32)
    last = b.integers([c.rank() - 1])
    if norm == "MAX":
        size = b("REDUCE_MAX", x, last, keep_dims=True)
    elif norm == "L1":
        size = b("SUM", b("ABS", x), last, keep_dims=True)
    else:
        size = b("SQRT", b("SUM", b("MUL", x, x), last, keep_dims=True))
    empty = b("EQUAL", size, b.like(x, 0.0))
    return b("DIV", x, b("SELECT_V2", empty, b.like(x, 1.0), size))


@handles("Binarizer", domain=ML)
def binarizer(c: Call) -> Tensor:
    b = c.b
    return b.cast(b("GREATER", c[0], b.like(c[0], c.attr("threshold", 0.0))), c.dtype)


@handles("Imputer", domain=ML)
def imputer(c: Call) -> Tensor:
    b, x = c.b, c[0]
    kind = "float" if x.dtype.is_float else "int64"
    values, gap = c.attr(f"imputed_value_{kind}s"), c.attr(f"replaced_value_{kind}", 0)
    if values is None:
        raise Refusal(f"it has no values for gaps of {x.dtype.name}")
    missing = b("NOT_EQUAL", x, x) if np.isnan(gap) else b("EQUAL", x, b.like(x, gap))
    return b("SELECT_V2", missing, b.like(x, np.asarray(values)), x)


@handles("ArrayFeatureExtractor", domain=ML)
def feature_extractor(c: Call) -> Tensor:
    b = c.b
    places = b.reshape(b.cast(c[1], DType.INT32), (prod(c.shape(1)),))
    x = b.reshape(c[0], (1, *c.shape())) if c.rank() == 1 else c[0]
    return b("GATHER", x, places, axis=x.type.rank - 1, batch_dims=0)


@handles("FeatureVectorizer", domain=ML)
def feature_vectorizer(c: Call) -> Tensor:
    parts = [c.b.cast(c[i], DType.FLOAT32) for i in range(len(c.inputs))]
    return parts[0] if len(parts) == 1 else c.b("CONCATENATION", *parts, axis=1)


@handles("LabelEncoder", domain=ML)
def label_encoder(c: Call) -> Tensor:
    """The value that stands beside the number among the keys."""
    b, x = c.b, c[0]
    keys, values = (
        _first(c, f"{name}_int64s", f"{name}_floats", f"{name}_tensor") for name in ("keys", "values")
    )
    is_float = values.dtype.kind == "f"
    default = c.attr("default_float", -0.0) if is_float else c.attr("default_int64", -1)
    given = c.attr("default_tensor")
    default = default if given is None else np.asarray(given).reshape(-1)[0]
    among = b("EQUAL", b.reshape(x, (*c.shape(), 1)), b.like(x, keys))
    last = b.integers([c.rank()])
    kind = DType.FLOAT32 if is_float else DType.INT64
    hits = b.cast(among, DType.FLOAT32)
    place = b("ARG_MAX", hits, b.constant(c.rank(), np.int32), output_type=DType.INT32)
    found = b("GATHER", b.constant(values.astype(kind.numpy)), place, axis=0, batch_dims=0)
    known = b("GREATER", b("SUM", hits, last, keep_dims=False), b.like(hits, 0.0))
    return b("SELECT_V2", known, found, b.like(found, default))


@handles("OneHotEncoder", domain=ML)
def one_hot_encoder(c: Call) -> Tensor:
    b, known = c.b, c.attr("cats_int64s")
    if known is None:
        raise Refusal("its categories are strings, which Circle does not compute")
    among = b("EQUAL", b.reshape(c[0], (*c.shape(), 1)), b.like(c[0], np.asarray(known)))
    return b.cast(among, DType.FLOAT32)


def _first(c: Call, *names: str) -> np.ndarray:
    for name in names:
        if c.attr(name) is not None:
            found = np.asarray(c.attr(name)).reshape(-1)
            return found.astype(np.float32 if found.dtype.kind == "f" else np.int64)
    raise Refusal("its keys or values are strings, which Circle does not compute")
