"""The tour: a real server, the flights of 2013, a kill in the middle, and Spark as the judge."""
