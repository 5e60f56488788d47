"""Where the work of a run is executed: `local` worker processes; each unit is a whole seed or a lane."""
