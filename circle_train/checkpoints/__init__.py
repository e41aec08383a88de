"""Training under way as files: ours, ONERT's, ONNX Runtime's."""
