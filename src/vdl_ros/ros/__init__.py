"""What nodes share: QoS by name, tensors on topics, statistics, parameters, spinning."""
