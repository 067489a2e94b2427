"""Acts: policies put behind locks, sleeps and loops."""
