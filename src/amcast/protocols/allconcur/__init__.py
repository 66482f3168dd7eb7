"""Leaderless atomic broadcast in rounds: the AllConcur family."""
