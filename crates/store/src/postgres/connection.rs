//! One connection to the server, with the statements that it has prepared.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

/// A client and the task that drives it.
pub(super) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    statements: Mutex<HashMap<String, Sent>>,
}

/// How a statement is sent. Preparing costs a round trip, so it is done at the third use: a process that runs one verb
/// never pays for it, although its transaction may send a statement twice.
pub(super) enum Usage {
    Whole,
    ToPrepare,
    Prepared(Statement),
}

/// What a connection knows of a statement that it has sent.
enum Sent {
    Once,
    Twice,
    Prepared(Statement),
}

impl Connection {
    pub fn new(client: Client, driver: JoinHandle<()>) -> Self {
        Self { client, driver, statements: Mutex::default() }
    }

    /// Counts one more use of a statement.
    pub fn note_use(&self, text: &str) -> Usage {
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        match statements.get_mut(text) {
            None => {
                statements.insert(text.to_owned(), Sent::Once);
                Usage::Whole
            }
            Some(sent @ Sent::Once) => {
                *sent = Sent::Twice;
                Usage::Whole
            }
            Some(Sent::Twice) => Usage::ToPrepare,
            Some(Sent::Prepared(statement)) => Usage::Prepared(statement.clone()),
        }
    }

    pub fn keep(&self, text: &str, statement: Statement) {
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        statements.insert(text.to_owned(), Sent::Prepared(statement));
    }

    /// Forgets all prepared statements.
    pub fn forget_statements(&self) {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
