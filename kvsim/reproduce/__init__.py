"""Published figures: simulate what they show and compare, number by number."""
