"""One small function per ONNX operator, by family."""
