"""Measures the product beside what people would build instead: same run, same machine, same simulator, same database.

`python -m bench` runs everything; each measurement is a module with one function `measure(stage)` that gives one
`Result`.
"""
