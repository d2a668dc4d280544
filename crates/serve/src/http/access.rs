//! Calls with a lease token: [`lease_token`] judges them, and a denial is 403 with what a lease token may do.

use http::StatusCode;
use rota_auth::LeaseToken;
use rota_verbs::error_report::Nature;
use rota_verbs::lease_token::{self, Bearer, Denial};
use rota_verbs::{Context, Said, Word};
use serde_json::{Map, Value};

use super::operations::Operation;
use super::problem;
use super::request::Asked;
use crate::listen::Problem;

/// Narrows a call to what the lease allows, or says why it is not allowed.
pub async fn narrow(
    claim: &LeaseToken,
    operation: &Operation,
    asked: &Asked,
    cx: Context,
) -> Result<Context, Problem> {
    let input: Map<String, Value> = serde_json::from_str(&asked.input).unwrap_or_default();
    let bearer = Bearer { scope: &claim.scope, task: &claim.task, lease: &claim.lease };
    // A call that names no scope means that of the lease.
    let scope = if asked.surroundings.contains_key("scope") { cx.scope.clone() } else { claim.scope.clone() };
    let cx = Context { scope, ..cx };
    match lease_token::authorize(cx, bearer, operation, &input).await {
        Ok(cx) => Ok(cx),
        Err(Denial::Forbidden { code, message }) => Err(forbidden(code, message)),
        Err(Denial::Failed(error)) => Err(problem(&Said::of(&error))),
    }
}

/// A call that no lease token allows.
pub fn forbidden(code: Word, message: String) -> Problem {
    let hint = Some(lease_token::SUMMARY.to_owned());
    let message = rota_core::text::escaped(&message).into_owned();
    let said = Said { message, hint, code, exit_code: 1, nature: Nature::Refusal };
    Problem::said(StatusCode::FORBIDDEN, &said)
}
