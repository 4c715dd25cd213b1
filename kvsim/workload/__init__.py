"""What arrives: arrival processes, length models, traces, and the outcomes that policies must not see."""
