"""Plain values and pure functions. They import nothing that reads the outside world."""
