"""Sub-machines that several protocols are built from."""
