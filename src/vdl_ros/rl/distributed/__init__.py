"""Several learners as one: collectives over ``torch.distributed``."""
