//! What Chaos does, on a paused clock.
