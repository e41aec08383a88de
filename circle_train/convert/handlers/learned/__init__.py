"""ONNX's operators for models of classical machine learning, as scikit-learn's and other exporters write them."""
