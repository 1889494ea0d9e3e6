"""A policy as an ONNX file: written from a checkpoint, and run without PyTorch."""
