//! Users without rights against a tracer of the whole host: what they cannot take from others.

mod files;
