//! `loop move`: a tree is handed to another host.

use rota_store::Store;
use rota_store::intents::loops::Move;

use super::ChangedTree;
use crate::Result;
use crate::context::{Context, bad_value, checked_name, task_id};

/// Hands the whole tree of a loop to a host, else to this one.
pub async fn move_tree(cx: &Context, id: &str, host: Option<String>) -> Result<ChangedTree> {
    let host = checked_name("host", host)?.or_else(|| cx.host.clone());
    let host = host.ok_or_else(|| bad_value("--host is needed: this host has no name".into()))?;
    let intent = Move { call: cx.call(), id: task_id(id)?, host };
    Ok(ChangedTree::of(cx.store.perform(&intent).await?))
}
