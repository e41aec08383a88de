"""The ONNX file: its wire format, its messages, its elements."""
