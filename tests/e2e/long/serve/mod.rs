//! `gpuprobe serve` beside many and slow clients, and with other programs: openssl, Prometheus, runc.

mod clients;
mod containers;
mod encryption;
mod prometheus;
