"""What attention kernels share: the configuration, and the layouts of K and V."""
