//! Placeholder of the systemd room.
