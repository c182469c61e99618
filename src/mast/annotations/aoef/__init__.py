"""Read and write AOEF, the exchange format of soundevent and Whombat."""
