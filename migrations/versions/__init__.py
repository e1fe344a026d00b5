"""One file per step, each standing alone: a step never imports the tables, which go on changing."""
