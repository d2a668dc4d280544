//! One task at a time, by one statement: what workers do most.
//!
//! Measured: starting a statement costs more than running it, and the more the more columns go from one of its steps to
//! the next, so rows are handed on whole. Against a function with the same steps it takes half the server's time. It
//! settles only what changes nothing but its own row, judged by that row alone: who waited for its lock judges anew. A
//! queue with a ceiling needs two statements, so its claims go by the function.

use tokio_postgres::types::ToSql;

/// The statements, with the schema's name.
pub(super) struct Texts {
    /// Grants.
    pub claim: String,
    /// Settles.
    pub done: String,
    /// Settles, then grants.
    pub both: String,
}

/// What every statement is told.
pub(super) struct Common<'a> {
    pub scope: &'a str,
    pub published: &'a Option<String>,
    pub version: &'a str,
    pub actor: &'a Option<String>,
    pub now: Option<i64>,
    pub call: i64,
}

/// What to settle.
pub(super) struct OneDone<'a> {
    pub id: &'a str,
    pub fence: Option<i64>,
    pub agent: &'a Option<String>,
    pub result: &'a Option<String>,
    /// The end of the event's data.
    pub tail: String,
}

/// What to grant.
pub(super) struct OneClaim<'a> {
    pub queue: &'a str,
    pub auto: bool,
    pub agent: &'a Option<String>,
    pub ttl_ms: i64,
    pub host: &'a Option<String>,
    /// The beginning of the event's data.
    pub head: String,
}

const COMMON: [&str; 6] = ["@scope", "@published", "@version", "@actor", "@now", "@call"];
const DONE: [&str; 5] = ["@id", "@fence", "@holder", "@result", "@tail"];
const CLAIM: [&str; 6] = ["@queue", "@auto", "@agent", "@ttl", "@host", "@head"];

const NOW: &str = "coalesce(@now::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
const SAME_POLICY: &str = "@published::text IS NOT DISTINCT FROM \
     (SELECT p.version FROM {schema}.policies p WHERE p.scope = @scope ORDER BY p.number DESC LIMIT 1)";

/// The clock, the queue, and whether there is nothing to do before a grant.
const SITUATION: &str = "situation AS MATERIALIZED (SELECT n.now, q.key, q.paused, {same_policy} AS same_policy, \
         NOT (@auto AND EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.queue = q.key AND t.status = 'active' \
             AND t.lease_expires_at <= n.now {other})) \
         AND NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.queue = q.key AND t.stage = 1 \
             AND t.next_eligible_at <= n.now) AS is_plain \
     FROM (SELECT {now} AS now) n LEFT JOIN {schema}.queues q ON q.scope = @scope AND q.name = @queue)";

const SETTLED: &str = "settled AS (UPDATE {schema}.tasks t SET status = 'done', lease_expires_at = NULL, \
         result = @result::text, finished_at = a.now, updated_at = a.now, events = t.events + 1, stage = 0 \
     FROM {from} a WHERE t.scope = @scope AND t.id = @id AND t.status = 'active' \
         AND (@fence::bigint IS NULL OR t.fence = @fence) \
         AND (@holder::text IS NULL OR t.assignee IS NULL OR t.assignee = @holder) \
         AND t.result IS NULL AND t.limited_in_row = 0 AND NOT t.awaited AND {if} \
     RETURNING t, t.queue, t.events, t.fence, a.now), \
     told AS (INSERT INTO {schema}.journal \
         (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, call, data) \
     SELECT @scope, @id, s.events, s.now, 'done', 'active', 'done', @actor, s.fence, @version, @call::bigint, \
         '{\"outcome\":\"done\",\"changes\":{\"finishedAt\":\"' || {time of s.now} || @tail FROM settled s)";

const GRANTED: &str = "picked AS MATERIALIZED (SELECT t.seq, t.started_at FROM {schema}.tasks t \
     WHERE t.queue = (SELECT a.key FROM situation a WHERE a.same_policy AND a.is_plain AND NOT a.paused AND {if}) \
         AND t.stage = 2 AND NOT t.bucketed \
         AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= (SELECT a.now FROM situation a)) \
         AND (t.host = '' OR @host::text IS NULL OR t.host = @host) \
     ORDER BY t.sort_priority, t.created_at, t.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED), \
     granted AS (UPDATE {schema}.tasks t SET status = 'active', fence = t.fence + 1, assignee = @agent::text, \
         lease_expires_at = least(a.now + @ttl::bigint, 253402207200000), started_at = a.now, updated_at = a.now, \
         events = t.events + 1, stage = 0 \
     FROM picked p, situation a WHERE t.seq = p.seq \
     RETURNING t, t.id, t.events, t.fence, t.lease_expires_at, t.triggered_by, t.artifact_present, a.now, \
         p.started_at IS NOT DISTINCT FROM a.now AS same_start), \
     journalled AS (INSERT INTO {schema}.journal \
         (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, call, data) \
     SELECT @scope, g.id, g.events, g.now, 'granted', 'open', 'active', @actor, g.fence, @version, @call::bigint, \
         @head || g.fence || ',\"leaseExpiresAt\":\"' || {time of g.lease_expires_at} \
         || CASE WHEN g.same_start THEN '' ELSE '\",\"startedAt\":\"' || {time of g.now} END \
         || CASE WHEN g.triggered_by IS NULL THEN '\"}}' \
             ELSE '\"},\"facts\":{\"artifactPresent\":' || g.artifact_present::text || '}}' END FROM granted g)";

/// A task that had no events but its creation and this grant has no blockers.
const BLOCKERS: &str = "CASE WHEN g.events > 2 THEN (SELECT json_agg(json_build_object('id', b.id, 'title', b.title, \
         'status', b.status, 'result', b.result) ORDER BY b.id)::text \
     FROM {schema}.edges e JOIN {schema}.tasks b ON b.scope = e.scope AND b.id = e.blocker \
     WHERE e.scope = @scope AND e.task = g.id) END";

/// The queue of what was settled may be another one.
const QUEUE: &str = "(SELECT q.name FROM {schema}.queues q WHERE q.key = s.queue)";

impl Texts {
    /// For a schema.
    pub fn of(schema: &str) -> Self {
        let finish = |text: String, names: &[&str]| {
            let text = text.replace("{same_policy}", SAME_POLICY).replace("{now}", NOW);
            let text = ["s.now", "g.now", "g.lease_expires_at"].iter().fold(text, |text, at| {
                let said = format!(
                    "to_char(timestamp 'epoch' + {at} * interval '1 millisecond', \
                     'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
                );
                text.replace(&format!("{{time of {at}}}"), &said)
            });
            let text = text.replace("{schema}", schema);
            let numbered =
                |text: String, (place, name): (usize, &&str)| text.replace(name, &format!("${}", place + 1));
            names.iter().enumerate().fold(text, numbered)
        };
        let situation = |other: &str| SITUATION.replace("{other}", other);
        let settled = |from: &str, only: &str| SETTLED.replace("{from}", from).replace("{if}", only);
        let granted = |only: &str| GRANTED.replace("{if}", only);
        Self {
            claim: finish(
                format!(
                    "WITH {}, {} SELECT a.same_policy AND a.key IS NOT NULL AND a.is_plain, g.t, {BLOCKERS} \
                     FROM situation a LEFT JOIN granted g ON true",
                    situation(""),
                    granted("true")
                ),
                &[&COMMON[..], &CLAIM[..]].concat(),
            ),
            done: finish(
                format!(
                    "WITH {} SELECT s.t, {QUEUE} FROM settled s",
                    settled("(SELECT {now} AS now)", SAME_POLICY)
                ),
                &[&COMMON[..], &DONE[..]].concat(),
            ),
            both: finish(
                format!(
                    "WITH {}, {}, {} SELECT a.same_policy AND a.is_plain AND EXISTS (SELECT 1 FROM settled), g.t, \
                     {BLOCKERS}, s.t, {QUEUE} \
                     FROM situation a LEFT JOIN granted g ON true LEFT JOIN settled s ON true",
                    situation("AND t.id <> @id"),
                    // A claim that will be refused settles nothing.
                    settled("situation", "a.same_policy AND a.key IS NOT NULL"),
                    granted("EXISTS (SELECT 1 FROM settled)")
                ),
                &[&COMMON[..], &DONE[..], &CLAIM[..]].concat(),
            ),
        }
    }
}

type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;

impl Common<'_> {
    pub fn values(&self) -> Values<'_> {
        vec![&self.scope, self.published, &self.version, self.actor, &self.now, &self.call]
    }
}

impl OneDone<'_> {
    pub fn values(&self) -> Values<'_> {
        vec![&self.id, &self.fence, self.agent, self.result, &self.tail]
    }
}

impl OneClaim<'_> {
    pub fn values(&self) -> Values<'_> {
        vec![&self.queue, &self.auto, self.agent, &self.ttl_ms, self.host, &self.head]
    }
}
