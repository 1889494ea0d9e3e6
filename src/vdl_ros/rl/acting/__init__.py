"""Acting: environment steps, unrolls, central inference, flow control, evaluation."""
