"""Training one network by a gang of processes, each with a device of its own or standing in for one."""
