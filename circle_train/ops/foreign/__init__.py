"""Operators of ONNX that Circle has none for: computed in numpy, kept in a file as a custom operator of ours."""
