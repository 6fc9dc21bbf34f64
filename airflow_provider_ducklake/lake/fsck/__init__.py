"""Finding damage in a catalog and its files, and mending what is provably safe to mend."""
