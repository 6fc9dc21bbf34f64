"""Our operations judged by the reference extension and a model of what must be there."""
