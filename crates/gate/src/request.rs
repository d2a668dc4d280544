//! A caller's request: its name, urgency and model.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use crate::priority::Priority;

/// Keyed once per process, so that names from outside cannot be made to collide.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The name of one request.
///
/// One request, not one caller: an agent with three concurrent calls uses three names. A name may be reused once its
/// request has ended. Cloning is cheap.
#[derive(Clone)]
pub struct RequestId {
    text: Arc<str>,
    /// Computed when the name is created, outside every lock.
    hash: u64,
}

impl RequestId {
    /// Names a request.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let hash = KEYS.hash_one(&*text);
        Self { text, hash }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, formatter)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl AsRef<str> for RequestId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for RequestId {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl<T> From<&T> for RequestId
where
    T: Borrow<RequestId>,
{
    fn from(id: &T) -> Self {
        id.borrow().clone()
    }
}

/// A request for one slot.
///
/// ```
/// use rota_gate::{Priority, Request};
///
/// let request = Request::new("exec-7").priority(Priority::High).model("opus-4");
/// assert_eq!(request.id().as_str(), "exec-7");
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) id: RequestId,
    pub(crate) priority: Option<Priority>,
    pub(crate) model: Option<Arc<str>>,
}

impl Request {
    /// A request with the gate's default priority and no model.
    pub fn new(id: impl Into<RequestId>) -> Self {
        Self { id: id.into(), priority: None, model: None }
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the model, which decides the budget.
    #[must_use]
    pub fn model(mut self, model: impl Into<Arc<str>>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The request's name.
    pub fn id(&self) -> &RequestId {
        &self.id
    }
}

/// Passes a precomputed hash through; spreads small numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Precomputed(u64);

impl Hasher for Precomputed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only whole 64-bit keys are hashed here");
    }

    fn write_u64(&mut self, key: u64) {
        // The odd constant is 2^64 divided by the golden ratio, so neighbours are spread.
        self.0 = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl BuildHasher for Precomputed {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_by_their_text() {
        let name = RequestId::from("exec-1");
        assert_eq!(name, RequestId::from(String::from("exec-1")));
        assert_eq!(name, RequestId::from(&name));
        assert_ne!(name, RequestId::from("exec-2"));
        assert_eq!(format!("{name} {name:?}"), "exec-1 \"exec-1\"");
    }
}
