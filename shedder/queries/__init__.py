"""From evidence to answers: estimates, contracts, choice of source."""
