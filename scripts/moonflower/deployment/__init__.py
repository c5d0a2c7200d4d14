"""A federation of real machines: who may talk to whom, and the processes on each of them."""
