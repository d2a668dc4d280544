//! Who calls: the operator, a lease, or somebody with a token that the operator made. What the store said is remembered
//! for a moment, so that a busy agent costs no read per call.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use rota_auth::{Authenticator, Caller as Shown, Token};
use rota_core::LeaseId;
use rota_core::policy::GateLevel;
use rota_gate::Priority;
use rota_store::intents::Call;
use rota_store::intents::gateway::{FindGateToken, LevelOfLease};
use rota_store::{AnyStore, Outcome, Store};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// How long an answer of the store counts.
const FRESH: Duration = Duration::from_secs(2);
/// How many leases are remembered as ended.
const ENDED: usize = 4_096;
/// What the tokens that people make begin with: anything else needs no look into the store.
pub const TOKEN_PREFIX: &str = "rota-";

/// Whose a call is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    /// The scope of the task.
    pub scope: String,
    /// Whose usage it counts as; empty for nobody's.
    pub task: String,
    /// How urgent it is; none for what the gate's policy says.
    pub priority: Option<Priority>,
    /// Whether it may ask for everything.
    pub is_operator: bool,
}

/// Somebody whose token was good a moment ago.
struct Known {
    token: Token,
    caller: Arc<Caller>,
    lease: Option<String>,
    /// The store is asked again from then on.
    until: Instant,
}

/// What the store says of a caller.
struct Found {
    caller: Caller,
    lease: Option<String>,
    /// How long a lease lasts yet.
    left: Duration,
}

pub(super) struct Callers {
    store: AnyStore,
    call: Call,
    auth: Authenticator,
    /// By a hash of their tokens whose keys nobody knows.
    known: Mutex<HashMap<u64, Known, RandomState>>,
    keys: RandomState,
    ended: Mutex<HashSet<String>>,
}

/// What is kept of a token.
pub fn hash_of(token: &[u8]) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The gate's word for a level of the policy.
pub fn priority_of(level: GateLevel) -> Priority {
    match level {
        GateLevel::Critical => Priority::Critical,
        GateLevel::High => Priority::High,
        GateLevel::Normal => Priority::Normal,
        GateLevel::Low => Priority::Low,
    }
}

impl Callers {
    pub fn new(store: AnyStore, call: Call, auth: Authenticator) -> Self {
        let (known, keys, ended) = (Mutex::default(), RandomState::default(), Mutex::default());
        Self { store, call, auth, known, keys, ended }
    }

    pub async fn identify(&self, shown: &[u8]) -> Outcome<Option<Arc<Caller>>> {
        let hash = self.keys.hash_one(shown);
        let is_known = |known: &&Known| Instant::now() < known.until && known.token.is(shown);
        if let Some(known) = self.known().get(&hash).filter(is_known) {
            return Ok(Some(Arc::clone(&known.caller)));
        }
        // Asking the store is rare and takes much room, which the state of every call would have to have.
        // Counted from before the store is asked, so that no lease is taken for longer than it is.
        let asked = Instant::now();
        let Some(Found { caller, lease, left }) = Box::pin(self.look_up(shown)).await? else {
            self.known().remove(&hash);
            return Ok(None);
        };
        let caller = Arc::new(caller);
        // Whoever was revoked while the store was asked stays so.
        if lease.as_ref().is_some_and(|lease| self.ended().contains(lease)) {
            return Ok(None);
        }
        if let Some(token) = Token::seen(shown) {
            let known = Known { token, caller: Arc::clone(&caller), lease, until: asked + left.min(FRESH) };
            self.known().insert(hash, known);
        }
        Ok(Some(caller))
    }

    async fn look_up(&self, shown: &[u8]) -> Outcome<Option<Found>> {
        match self.auth.identify(shown) {
            Some(Shown::Operator) => {
                let scope = self.call.scope.clone();
                let caller = Caller { scope, task: String::new(), priority: None, is_operator: true };
                Ok(Some(Found { caller, lease: None, left: FRESH }))
            }
            Some(Shown::Lease(claim)) => {
                let Ok(lease) = LeaseId::parse(&claim.lease) else { return Ok(None) };
                if lease.task.as_str() != claim.task || self.ended().contains(&claim.lease) {
                    return Ok(None);
                }
                let call = Call { scope: claim.scope.clone(), ..self.call.clone() };
                let ask = LevelOfLease { call, task: lease.task, fence: lease.fence };
                let Some(held) = self.store.perform(&ask).await? else { return Ok(None) };
                let caller = Caller {
                    scope: claim.scope,
                    task: claim.task,
                    priority: Some(priority_of(held.level)),
                    is_operator: false,
                };
                let left = Duration::from_millis(held.left_ms);
                Ok(Some(Found { caller, lease: Some(claim.lease), left }))
            }
            None if shown.starts_with(TOKEN_PREFIX.as_bytes()) => {
                let ask = FindGateToken { call: self.call.clone(), hash: hash_of(shown) };
                let found = self.store.perform(&ask).await?;
                Ok(found.map(|(token, level)| {
                    let (scope, task) = (token.scope, token.task.unwrap_or_default());
                    let caller =
                        Caller { scope, task, priority: Some(priority_of(level)), is_operator: false };
                    Found { caller, lease: None, left: FRESH }
                }))
            }
            None => Ok(None),
        }
    }

    pub fn revoke(&self, lease: &str) {
        let mut ended = self.ended();
        // The store knows them too by now; this is for the moment until it does.
        if ended.len() >= ENDED {
            ended.clear();
        }
        ended.insert(lease.to_owned());
        drop(ended);
        self.known().retain(|_, known| known.lease.as_deref() != Some(lease));
    }

    pub fn expect(&self, lease: &str) {
        self.ended().remove(lease);
    }

    /// Forgets what is no longer fresh.
    pub fn tidy(&self) {
        let now = Instant::now();
        self.known().retain(|_, known| now < known.until);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known, RandomState>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> MutexGuard<'_, HashSet<String>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
