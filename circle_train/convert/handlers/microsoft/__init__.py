"""Operators of onnxruntime's own domain, com.microsoft, which its optimizer and quantizer write."""
