"""What goes wrong in a run: a plan, drawn before the run, one object per fault.

A plan can be printed, read, and run again without some of its faults, which is how a failure is made short: no fault
draws anything when it acts that another one could notice. Times are milliseconds from the beginning of the run. Every
fault ends by itself, before the calm; replicas that it stopped are started again by it.

A kind of fault says in its class what it does (`act`) and how it is drawn (`draw`). Most have one of few shapes
(`shapes`): a replica is away for a while, perhaps with harm to its disk; something is in force for a while; something
happens as soon as the world is in a certain state.
"""
