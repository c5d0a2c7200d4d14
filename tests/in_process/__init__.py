"""Both apps end to end, without Ray, sockets or waiting."""
