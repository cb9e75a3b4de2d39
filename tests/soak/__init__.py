"""An hour of mixed load on one worker, and whether anything grew meanwhile."""
