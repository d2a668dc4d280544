//! `gate unblock`: ends a block, a quota's too.

use rota_store::Store;
use rota_store::intents::blocks::Unblock;
use serde::Serialize;

use crate::Result;
use crate::context::{Context, checked_name};

/// What is open again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unblocked {
    /// The upstreams.
    pub unblocked: Vec<String>,
}

/// Ends the blocks of upstreams. Gates that run notice within a second.
pub async fn unblock(cx: &Context, upstreams: &[String]) -> Result<Unblocked> {
    for upstream in upstreams {
        checked_name("upstream", Some(upstream.clone()))?;
        cx.store.perform(&Unblock { call: cx.call(), upstream: upstream.clone() }).await?;
    }
    Ok(Unblocked { unblocked: upstreams.to_vec() })
}
