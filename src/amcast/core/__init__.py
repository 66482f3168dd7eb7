"""What every layer shares: ids, messages, topology, timestamps, the process interface, the trace schema, errors."""
