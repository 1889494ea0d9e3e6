"""Fast DDS: transport, shared memory, ports."""
