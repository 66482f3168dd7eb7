"""Pages, plots and the papers' figures, from tables that others computed."""
