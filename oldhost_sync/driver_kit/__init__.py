"""For whoever writes a driver: tests that a driver passes, given samples of the host's wire and a model of the host.

Nothing of the product imports it, and it brings no plugin: tests that want it inherit `driver_tests.DriverTests`.
"""
