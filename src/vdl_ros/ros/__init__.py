"""Shared by nodes: QoS profiles, messages, statistics, bags, DDS, parameters, processes."""
