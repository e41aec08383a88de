"""Train .circle, .tflite and .onnx models where the data is, and get an inference file back."""
