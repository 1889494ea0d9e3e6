"""DDS: transport, shared memory and ports of Fast DDS."""
