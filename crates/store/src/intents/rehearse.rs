//! A dry run: everything is done, shown, and undone.

use async_trait::async_trait;

use crate::fault::Outcome;
use crate::store::Intent;
use crate::tx::AnyTx;

/// Carries out an intent in its transaction and keeps nothing of it.
#[derive(Clone, Debug)]
pub struct Rehearse<'a, I>(pub &'a I);

#[async_trait]
impl<I: Intent> Intent for Rehearse<'_, I> {
    type Output = I::Output;

    fn is_kept(&self, _ran: &Outcome<I::Output>) -> bool {
        false
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<I::Output> {
        self.0.run(tx).await
    }
}
