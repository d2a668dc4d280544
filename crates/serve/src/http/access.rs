//! What the holder of a lease may do: use the verbs of tasks and loops within the scope of its lease, and settle its own
//! task, as long as it holds the lease. Everything else is the operator's.

use http::StatusCode;
use rota_door::LeaseClaim;
use rota_verbs::verb::Holder;
use rota_verbs::{Context, Error, Said, show};

use super::operations::Operation;
use super::problem;
use super::request::Asked;
use crate::listen::Problem;

fn forbidden(code: &'static str, detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, code, detail)
}

/// Narrows a call to what the lease allows, or says why it is not allowed.
pub fn narrow(
    claim: &LeaseClaim,
    operation: &Operation,
    asked: &Asked,
    mut cx: Context,
) -> Result<Context, Problem> {
    let name = operation.route.name;
    let may = match operation.route.holder {
        Holder::Never => false,
        Holder::InScope => true,
        Holder::OwnTask => asked.id.as_deref() == Some(claim.task.as_str()),
    };
    if !may {
        let detail = format!("the token of {} does not allow `{name}` here", claim.lease);
        return Err(forbidden("lease_may_not", detail));
    }
    if asked.surroundings.contains_key("scope") && cx.scope != claim.scope {
        return Err(forbidden("lease_may_not", format!("{} is not of this scope", claim.lease)));
    }
    // At another time leases of others would have run out.
    if cx.now.is_some() {
        return Err(forbidden(
            "lease_may_not",
            format!("the token of {} goes by the store's clock", claim.lease),
        ));
    }
    cx.scope.clone_from(&claim.scope);
    if operation.route.holder == Holder::OwnTask {
        cx.lease = cx.lease.or_else(|| Some(claim.lease.clone()));
    }
    cx.ambient_lease = Some(claim.lease.clone());
    held(&cx, claim)?;
    Ok(cx)
}

/// The seal says that the lease was granted; only the store knows whether it is held.
fn held(cx: &Context, claim: &LeaseClaim) -> Result<(), Problem> {
    let held = match cx.store.wait(show::show(cx, &claim.task, false)) {
        Ok(shown) => shown.task.lease_id.as_deref() == Some(claim.lease.as_str()),
        Err(Error::Refused(_)) => false,
        Err(fault) => return Err(problem(&Said::of(&fault))),
    };
    if held { Ok(()) } else { Err(forbidden("lease_ended", format!("{} is not held any more", claim.lease))) }
}
