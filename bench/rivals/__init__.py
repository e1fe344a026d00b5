"""What people would build instead, written as well as we can: each a process that is told everything by its
environment.

All of them keep the product's own ledger discipline (takeover by epoch, reserve, SENT, recovery by the expected nonce):
without it they would be faster and wrong. They differ in what decides *what goes next and when*.
"""
