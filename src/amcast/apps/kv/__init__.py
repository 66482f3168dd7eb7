"""A partitioned, replicated key-value store that speaks the Redis protocol.

machine     what a group executes: locks, queues, answers
states      what its state consists of
store       keys, expiry, versions;  strings: the commands on them;  glob: KEYS patterns
slots       which group has a key;   commands: the table of commands, and how partial results become one
moving      carries keys of slots;   rebalancing: which slots are to move, step by step
wire        what travels between gateway and groups
resp        the Redis protocol;      session: one connection;  batching: few multicasts;  gateway: the server
lookout     the time, and which groups can be used
users       who may do what;         users_file: where that stands
"""

from amcast.apps.kv.machine import KV

__all__ = ["KV"]
