"""All schedules of a protocol within a scope.

The shipped protocol objects run here as they do everywhere else, but nothing happens by itself. Which message arrives
next, whose timer fires, who crashes and who suspects its leader is a `Move`, and the search makes every choice.
"""
