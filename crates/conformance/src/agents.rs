//! Agents, the gate's blocks, and scopes.

use std::collections::BTreeSet;

use async_trait::async_trait;
use rota_core::{Refusal, UnixMillis};

use crate::lab::{SCOPE, after, at, claim, done, held, id, new};
use crate::{Lab, Snapshot, Subject, check_everything};
use rota_store::Outcome;
use rota_store::intents::Call;
use rota_store::intents::add::Add;
use rota_store::intents::agents::{DeregisterAgent, ListAgents, RegisterAgent};
use rota_store::intents::claim::{Claim, ReclaimExpired};
use rota_store::intents::edges::Block;
use rota_store::intents::policy::{CurrentPolicy, PauseQueue, PublishPolicy};
use rota_store::intents::settle::Settle;
use rota_store::{Access, Intent};
use rota_store::{AnyTx, BlockRow, Tx};

/// Four hex digits, unique in the scope; newest first; deregistering again is fine, an unknown one is refused.
pub fn agents_register_and_stop<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let register = |now, pid| RegisterAgent { call: lab.call(at(now)), pid, host: "h".into() };
    let agents: Vec<_> = (0..40).map(|number| lab.ok(&register(i64::from(number), number))).collect();
    let names: BTreeSet<&str> = agents.iter().map(|agent| agent.id.as_str()).collect();
    assert_eq!(names.len(), 40, "every id is its own");
    assert!(names.iter().all(|name| name.len() == 4 && name.bytes().all(|byte| byte.is_ascii_hexdigit())));
    let list = || lab.ok(&ListAgents { call: lab.call(at(99)) });
    let times: Vec<UnixMillis> = list().iter().map(|agent| agent.started_at).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older));
    let stop = |now, name: &str| DeregisterAgent { call: lab.call(at(now)), id: name.to_owned() };
    lab.ok(&stop(50, &agents[3].id));
    lab.ok(&stop(60, &agents[3].id));
    let stopped = list().into_iter().find(|agent| agent.id == agents[3].id).unwrap();
    assert_eq!((stopped.stopped_at, stopped.pid, stopped.host.as_str()), (Some(at(50)), 3, "h"));
    let refused = lab.refused(&stop(61, "none"));
    assert_eq!(refused, Refusal::AgentNotFound { id: "none".into() });
}

struct Blocked {
    write: Option<BlockRow>,
}

#[async_trait]
impl Intent for Blocked {
    type Output = Option<BlockRow>;

    fn access(&self) -> Access {
        if self.write.is_some() { Access::Write } else { Access::Read }
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Option<BlockRow>> {
        if let Some(block) = &self.write {
            tx.set_block(block).await?;
        }
        Ok(tx.block("anthropic").await?)
    }
}

/// The gate's block is kept per upstream, and the newest one counts.
pub fn blocks_are_kept_per_upstream<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    assert_eq!(lab.ok(&Blocked { write: None }), None);
    let block = |upstream: &str, until, hits, reason: Option<&str>| BlockRow {
        upstream: upstream.to_owned(),
        blocked_until: until,
        hits,
        reason: reason.map(str::to_owned),
        updated_at: at(1),
    };
    for block in [
        block("anthropic", Some(at(60)), 1, Some("429")),
        block("anthropic", None, 2, None),
        block("anthropic", Some(at(5)), 0, Some("quota")),
    ] {
        lab.ok(&Blocked { write: Some(block.clone()) });
        lab.ok(&Blocked { write: Some(BlockRow { upstream: "openai".into(), hits: 9, ..block.clone() }) });
        assert_eq!(lab.another().ok(&Blocked { write: None }), Some(block));
    }
}

/// The same ids, queues, policies and agents in two scopes know nothing of each other.
pub fn scopes_do_not_see_each_other<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let other = || Call::in_scope("owner/repo@branch").at(at(1));
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#);
    lab.add(at(0), &[new("a"), after("b", &["a"])]);
    lab.ok(&Add { call: other(), tasks: vec![new("a"), new("b"), new("c")] });
    lab.ok(&Block { call: other(), task: id("a"), by: id("b") });
    assert_eq!(lab.claim(at(1), 9), ["a"]);
    lab.ok(&PauseQueue { call: lab.call(at(1)), queue: "tasks".into(), paused: true });
    let granted = lab.ok(&Claim { call: other(), ..claim(at(1), 9) });
    assert_eq!(crate::lab::ids(&granted), ["b", "c"]);
    lab.must(at(2), "a", done(held("a", 1)));
    let settled = lab.ok(&Settle::one(other(), id("b"), done(held("b", 1))));
    assert!(settled.steps[0].is_ok());
    let unknown = lab.ok(&Settle::one(Call::in_scope("third").at(at(1)), id("a"), done(held("a", 1))));
    assert_eq!(unknown.steps[0], Err(Refusal::TaskNotFound { id: id("a") }));
    let late = Call { now: Some(at(9_999)), ..other() };
    assert_eq!(lab.ok(&ReclaimExpired { call: late, queue: "tasks".into() }), [id("c")]);
    lab.ok(&RegisterAgent { call: other(), pid: 1, host: "h".into() });
    assert!(lab.ok(&ListAgents { call: lab.call(at(1)) }).is_empty());
    let policy = rota_core::Policy::parse(r#"{"queues":{"mine":{}}}"#).unwrap();
    lab.ok(&PublishPolicy { call: other(), policy, based_on: None });
    assert_eq!(lab.ok(&CurrentPolicy { call: lab.call(at(1)) }).1.len(), 1);
    for scope in [SCOPE, "owner/repo@branch", "third"] {
        for now in [at(1), at(9_999)] {
            let picture = lab.ok(&Snapshot { scope: scope.to_owned(), now });
            check_everything(&picture);
            assert!(picture.events.iter().all(|event| event.scope == scope));
        }
    }
    assert_eq!(lab.task("b").status, rota_core::Status::Open);
}
