//! What a client can send or hold at most. Each is written in docs/gateway-limits.md.

use std::time::Duration;

/// The longest body of a request; providers take 32 MB.
pub const BODY_BYTES: usize = 64 * 1_024 * 1_024;
/// All bodies that are held at once.
pub const BODIES_BYTES: usize = 512 * 1_024 * 1_024;
/// The head of a request, and of an answer.
pub const HEAD_BYTES: usize = 64 * 1_024;
/// Headers in a head: as many as hyper has room for without asking for memory.
pub const HEADERS: usize = 100;
/// What is read of an answer at once: at first, and when it comes faster than it is taken.
pub const READ_BYTES: usize = 8 * 1_024;
/// See [`READ_BYTES`].
pub const READ_MOST_BYTES: usize = 64 * 1_024;
/// Connections at once; at the limit the oldest without a request is dropped for a new one.
pub const CONNECTIONS: usize = 1_024;
/// Streams at once on one connection that speaks HTTP/2.
pub const STREAMS: u32 = 128;
/// How long a head may take, also that of the next request on a connection that is kept.
pub const HEAD: Duration = Duration::from_secs(60);
/// How long a body may take without a byte, and in all.
pub const BODY_PAUSE: Duration = Duration::from_secs(30);
/// See [`BODY_PAUSE`].
pub const BODY: Duration = Duration::from_secs(300);
/// How long a client may take nothing of what it is sent.
pub const STALL: Duration = Duration::from_secs(120);
/// How long connecting to a provider may take, its handshake included.
pub const CONNECT: Duration = Duration::from_secs(15);
/// How long a provider may take to begin its answer, and between two pieces of it.
pub const SILENCE: Duration = Duration::from_secs(1_800);
/// A connection to a provider that was not used for longer is not used again: it may be half closed by then.
pub const IDLE: Duration = Duration::from_secs(20);
/// Idle connections to one provider.
pub const IDLE_LINKS: usize = 128;
/// What is read of an answer that is not passed on, and for how long.
pub const REFUSAL_BYTES: usize = 64 * 1_024;
/// See [`REFUSAL_BYTES`].
pub const REFUSAL: Duration = Duration::from_secs(5);
/// How long answers under way may take when the gateway is told to stop.
pub const GRACE: Duration = Duration::from_secs(30);
/// What is kept of an answer to read its usage.
pub const METERED_BYTES: usize = 4 * 1_024 * 1_024;
/// What is kept of one line of a stream.
pub const METERED_LINE_BYTES: usize = 1_024 * 1_024;
