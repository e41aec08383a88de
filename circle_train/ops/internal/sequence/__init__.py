"""ONNX's recurrent operators over sequences of any length, and the cells that they step."""
