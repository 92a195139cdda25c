"""`shedder check`: verify a data directory while no server has it open."""
