"""PrimCast: every replica of every destination finds the order by itself, three message delays after the multicast."""
