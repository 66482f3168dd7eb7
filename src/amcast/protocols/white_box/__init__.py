"""White-Box atomic multicast: Skeen's protocol and Paxos woven into one."""
