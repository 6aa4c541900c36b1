"""What listens to torch: a file a probe, and every private name of torch in one."""
