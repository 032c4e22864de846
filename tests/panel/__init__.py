"""The panel's side in the kernel: beside no kernel, in real ones, over comms and sockets, under load."""
