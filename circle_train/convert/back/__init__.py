"""The way back: provenances in files, trained values into ONNX."""
