"""The asynchronous adversary: channels, timers, crashes and elections in any order, with no bound on time."""
