//! `rota mcp`: the same bytes as the command line, over both transports and in both families; authentication; and how it ends.

pub mod client;
pub mod clients;
pub mod ending;
mod http;
pub mod same_bytes;
mod sessions;
