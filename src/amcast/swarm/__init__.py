"""Random faulty runs: a seed draws a configuration and a fault plan, and every promise is checked."""
