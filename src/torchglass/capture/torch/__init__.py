"""The probes that listen to torch, one file each, and one file with all private names of torch that we use."""
