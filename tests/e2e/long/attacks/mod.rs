//! Unprivileged users cannot disturb a host-wide tracer of other users' processes.

mod files;
