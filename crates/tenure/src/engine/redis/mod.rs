//! One Redis server.
