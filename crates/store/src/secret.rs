//! What may hold a password. It has no `Debug`, `Display` or `Serialize`, so it cannot reach a message by accident.

/// A text that is used and never shown.
///
/// ```compile_fail
/// println!("{:?}", rota_store::Secret::from("hunter2"));
/// ```
/// ```compile_fail
/// println!("{}", rota_store::Secret::from("hunter2"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for whoever it is meant for.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
