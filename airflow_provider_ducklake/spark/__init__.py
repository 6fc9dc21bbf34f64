"""Jobs on Spark: they distribute the work of the kernels and hand the outcome to the committer."""
