//! Publishing what `rota.yml` says about the policy. The daemon, the gateway and the supervisor do it when they start and
//! when the file changes.

use std::path::Path;
use std::sync::Arc;

use rota_core::Refusal;
use rota_store::intents::Call;
use rota_store::intents::policy::{CurrentPolicy, PublishPolicy};
use rota_store::{AnyStore, Error, Outcome, Published, Store};
use rota_verbs::{Context, mirror, policy};

use crate::config::Config;

/// How often a policy is published anew when others publish at the same time.
const TRIES: u32 = 5;

/// The policy in force, and how the file relates to it.
pub struct Publication {
    /// The policy that decides.
    pub policy: Arc<Published>,
    /// Where the file differs from it, in words; none where it does not, or was published.
    pub differs: Option<String>,
    /// Why the plain copy of a policy that was published could not be written.
    pub not_mirrored: Option<String>,
}

impl Publication {
    /// Warnings for the operator, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let differs = self.differs.as_ref().map(|changes| {
            format!(
                "rota.yml differs from the published policy, which decides (--publish publishes it): {changes}"
            )
        });
        let not_mirrored =
            self.not_mirrored.as_ref().map(|error| format!("published, but not mirrored: {error}"));
        differs.into_iter().chain(not_mirrored).collect()
    }
}

/// Publishes what the file says, if it may and the file says something else. The copy goes to `copy`.
pub async fn publish(
    store: &AnyStore,
    call: &Call,
    config: &Config,
    may_publish: bool,
    copy: &Path,
) -> Outcome<Publication> {
    let as_it_is = |policy, differs| Publication { policy, differs, not_mirrored: None };
    let mut tries = 0;
    let policy = loop {
        let (current, _) = store.perform(&CurrentPolicy { call: call.clone() }).await?;
        let wanted = config.apply_to(&current.policy).map_err(Refusal::from)?;
        if wanted == current.policy {
            return Ok(as_it_is(current, None));
        }
        if !may_publish {
            let words = policy::between(Some(&current.policy), &wanted).in_words();
            return Ok(as_it_is(current, Some(words)));
        }
        let based_on = Some(current.version.clone());
        tries += 1;
        match store.perform(&PublishPolicy { call: call.clone(), policy: wanted, based_on }).await {
            Ok(policy) => break policy,
            // Another host's process was started in the same moment.
            Err(Error::Refused(Refusal::PolicyMoved { .. })) if tries < TRIES => {}
            Err(error) => return Err(error),
        }
    };
    let cx = Context { scope: call.scope.clone(), ..Context::new(store.clone()) };
    let mirrored = mirror::write(&cx, copy).await;
    Ok(Publication { not_mirrored: mirrored.err().map(|error| error.to_string()), ..as_it_is(policy, None) })
}
