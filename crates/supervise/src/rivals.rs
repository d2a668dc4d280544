//! Supervisors that share a tracker but not a store. Between them no lease decides, so each names its store in a hidden
//! comment right after it has set the label; comments have one order, and the later one yields. The comment is deleted
//! before the label is removed, so an issue without the label and with a foreign claim was unlabelled by a person while
//! its holder goes on: it is passed over.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::PoisonError;
use std::time::Duration;

use rota_core::LeaseId;
use rota_store::Store;
use rota_store::intents::issues::Identify;
use tokio::time::Instant;

use crate::Broken;
use crate::sources::{Comment, Source, Trouble, marked};
use crate::turn::Turn;

/// The first word of the hidden marker.
const CLAIM: &str = "claim";
/// How long an issue of another store's supervisor is passed over before it is looked at again.
const PASSED_OVER: Duration = Duration::from_secs(600);

/// The store that a comment names as the issue's holder.
fn claimant(comment: &Comment) -> Option<&str> {
    comment.markers().find_map(|marker| marker.strip_prefix(CLAIM)?.split_whitespace().next())
}

/// The store whose claim came first, if it is not this one.
fn earlier_than<'a>(own: &str, comments: &'a [Comment]) -> Option<&'a str> {
    comments.iter().find_map(claimant).filter(|first| *first != own)
}

impl<S: Source> Turn<S> {
    /// A tracker in the store has no other stores beside it.
    fn has_rivals(&self) -> bool {
        self.shared.source.kind().is_some()
    }

    async fn identity(&self) -> Result<&str, Broken> {
        let shared = &self.shared;
        let identify = || async {
            // The hasher's keys are random bits of the system.
            let proposed = format!("{:016x}", RandomState::new().build_hasher().finish());
            let identify = Identify { call: shared.call.clone(), source: shared.source.key(), proposed };
            shared.store.perform(&identify).await
        };
        Ok(shared.identity.get_or_try_init(identify).await?)
    }

    /// Whether a supervisor with another store has this issue, though its label is not there.
    pub(super) async fn is_claimed_elsewhere(&self, number: u64) -> Result<bool, Broken> {
        if !self.has_rivals() {
            return Ok(false);
        }
        let own = self.identity().await?;
        let comments = self.shared.source.comments(number).await?;
        let Some(other) = comments.iter().filter_map(claimant).find(|other| *other != own) else {
            return Ok(false);
        };
        self.warn(format!(
            "#{number}: the supervisor of store {} has claimed it: passed over (if that one is gone, delete its comment)",
            rota_core::text::escaped(other)
        ));
        self.leave_elsewhere(number);
        Ok(true)
    }

    fn leave_elsewhere(&self, number: u64) {
        let mut elsewhere = self.shared.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        elsewhere.insert(number, Instant::now() + PASSED_OVER);
    }

    /// Whether it was found with another store's supervisor a short while ago.
    pub(super) fn is_known_elsewhere(&self, number: u64) -> bool {
        let elsewhere = self.shared.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        elsewhere.get(&number).is_some_and(|until| Instant::now() < *until)
    }

    /// Names this store on an issue whose label was just set. The store that was faster, if one was: then this one has
    /// taken its name back, and leaves the label to the other.
    pub(super) async fn announce(&self, number: u64, lease: &LeaseId) -> Result<Option<String>, Broken> {
        if !self.has_rivals() {
            return Ok(None);
        }
        let own = self.identity().await?;
        let source = &self.shared.source;
        let text = marked("Rota works on this issue.", &format!("{CLAIM} {own} {lease}"));
        let is_own = |comment: &Comment| claimant(comment) == Some(own);
        let mut tries = 0;
        let comments = loop {
            let posted = source.comment(number, &text).await;
            // It may have been posted before the answer was lost.
            let comments = source.comments(number).await?;
            match posted {
                Err(trouble) if !comments.iter().any(is_own) => {
                    if !trouble.may_pass() || tries >= 2 {
                        return Err(trouble.into());
                    }
                    tries += 1;
                }
                _ => break comments,
            }
        };
        let Some(other) = earlier_than(own, &comments) else { return Ok(None) };
        self.leave_elsewhere(number);
        self.withdraw(number).await?;
        Ok(Some(other.to_owned()))
    }

    /// Takes this store's name from an issue again.
    pub(super) async fn withdraw(&self, number: u64) -> Result<(), Broken> {
        if !self.has_rivals() {
            return Ok(());
        }
        let own = self.identity().await?;
        let source = &self.shared.source;
        let comments = match source.comments(number).await {
            Err(Trouble::NotFound { .. }) => return Ok(()),
            comments => comments?,
        };
        for comment in comments.iter().filter(|comment| claimant(comment) == Some(own)) {
            source.delete_comment(comment.id).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_claim_counts() {
        let comment = |body: &str| Comment { id: 1, author: None, body: body.to_owned() };
        let claim =
            |store: &str| comment(&marked("Rota works on this issue.", &format!("claim {store} lease-x-1")));
        let words = comment("please fix this");
        let quoted = comment("> <!-- rota: claim bb lease-x-1 -->\nwhat is this?");
        let other = comment(&marked("Done.", "done lease-x-1"));
        for (comments, wanted) in [
            (vec![], None),
            (vec![words.clone(), claim("aa")], None),
            (vec![quoted, other, claim("aa"), claim("bb")], None),
            (vec![claim("bb"), words, claim("aa")], Some("bb")),
        ] {
            assert_eq!(earlier_than("aa", &comments), wanted, "{comments:?}");
        }
    }
}
