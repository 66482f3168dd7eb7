"""Clients of a simulated cluster, and what they write down: direct ones, and Redis clients of the gateway.

All of them do what a user would: think, ask, take an answer, an error or silence for what it is, and go on. Everything
goes through the running loop and a `Random` that is handed in. A `Book` has what they did and heard, in the one true
time of the world, which no process knows; `judge.check_calls` judges its calls.
"""
