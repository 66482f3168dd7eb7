"""The whole cluster in one process, in virtual time, under a seed: shipped nodes, clients and gateway, all faults."""
