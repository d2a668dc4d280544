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
    /// What granted tasks waited for.
    pub blockers: String,
    /// What a queue is called.
    pub queue_name: String,
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
    pub head: &'a String,
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

/// What may be settled by this row alone: whoever waits for its lock judges anew.
const MAY_SETTLE: &str = "t.seq = (SELECT i.seq FROM {schema}.ids i WHERE i.scope = @scope AND i.id = @id) \
         AND t.status = 'active' \
         AND (@fence::bigint IS NULL OR t.fence = @fence) \
         AND (@holder::text IS NULL OR t.assignee IS NULL OR t.assignee = @holder) \
         AND t.result IS NULL AND t.limited_in_row = 0 AND NOT t.awaited";

const SETTLED: &str = "changed AS (UPDATE {schema}.tasks t SET status = 'done', lease_expires_at = NULL, \
         result = @result::text, finished_at = a.now, updated_at = a.now, events = t.events + 1, stage = 0, \
         told = {next row}, told_before = t.told \
     FROM (SELECT {now} AS now) a WHERE {may settle} AND {same_policy} \
     RETURNING t, t.id, t.events, t.fence, t.told, t.told_before, a.now)";

const HELD: &str = "held AS MATERIALIZED (SELECT t.seq FROM {schema}.tasks t WHERE {may settle} \
         AND (SELECT a.same_policy AND a.key IS NOT NULL FROM situation a) FOR NO KEY UPDATE)";

const PICKED: &str = "picked AS MATERIALIZED (SELECT t.seq, t.started_at FROM {schema}.tasks t \
     WHERE t.queue = (SELECT a.key FROM situation a WHERE a.same_policy AND a.is_plain AND NOT a.paused AND {if}) \
         AND t.stage = 2 AND NOT t.bucketed \
         AND (t.next_eligible_at IS NULL OR t.next_eligible_at <= (SELECT a.now FROM situation a)) \
         AND (t.host = '' OR @host::text IS NULL OR t.host = @host) \
     ORDER BY t.sort_priority, t.created_at, t.seq LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)";

const GRANTED: &str = "changed AS (UPDATE {schema}.tasks t SET status = 'active', fence = t.fence + 1, \
         assignee = @agent::text, lease_expires_at = {lease end}, started_at = a.now, updated_at = a.now, \
         events = t.events + 1, stage = 0, told = {next row}, told_before = t.told \
     FROM picked p, situation a WHERE t.seq = p.seq \
     RETURNING t, t.id, t.events, t.fence, t.told, t.told_before, t.lease_expires_at, t.triggered_by, \
         t.artifact_present, a.now, p.started_at IS NOT DISTINCT FROM a.now AS same_start)";

/// One update of two rows: to open the table for another one would cost a quarter of the whole.
const BOTH: &str = "changed AS (UPDATE {schema}.tasks t SET status = CASE WHEN b.grants THEN 'active' ELSE 'done' END, \
         fence = CASE WHEN b.grants THEN t.fence + 1 ELSE t.fence END, \
         assignee = CASE WHEN b.grants THEN @agent::text ELSE t.assignee END, \
         lease_expires_at = CASE WHEN b.grants THEN {lease end} END, \
         started_at = CASE WHEN b.grants THEN a.now ELSE t.started_at END, \
         finished_at = CASE WHEN b.grants THEN t.finished_at ELSE a.now END, \
         result = CASE WHEN b.grants THEN t.result ELSE @result::text END, \
         updated_at = a.now, events = t.events + 1, stage = 0, told = {next row}, told_before = t.told \
     FROM (SELECT h.seq, false AS grants, NULL::bigint AS started_at FROM held h \
         UNION ALL SELECT p.seq, true, p.started_at FROM picked p) b, situation a WHERE t.seq = b.seq \
     RETURNING t, t.id, t.events, t.fence, t.told, t.told_before, t.lease_expires_at, t.triggered_by, \
         t.artifact_present, a.now, b.grants, b.started_at IS NOT DISTINCT FROM a.now AS same_start)";

const LEASE_END: &str = "least(a.now + @ttl::bigint, 253402207200000)";

const NEXT_ROW: &str = "nextval('{schema}.journal_seq_seq')";

/// Tells the journal, by a row for each task: to gather two events in one takes longer. The three words and the data are
/// those of the event.
const TOLD: &str = "told AS (INSERT INTO {schema}.journal (seq, at, scope, policy, call, events) \
     OVERRIDING SYSTEM VALUE SELECT c.told, c.now, @scope, @version, @call::bigint, ARRAY[ROW(c.id, c.events, {words}, \
         @actor::text, c.fence, c.told_before, {data})::{schema}.told] FROM changed c)";
const DONE_DATA: &str = "'{\"outcome\":\"done\",\"changes\":{\"finishedAt\":\"' || {time of c.now} || @tail";
const GRANT_DATA: &str = "@head || c.fence || ',\"leaseExpiresAt\":\"' || {time of c.lease_expires_at} \
     || CASE WHEN c.same_start THEN '' ELSE '\",\"startedAt\":\"' || {time of c.now} END \
     || CASE WHEN c.triggered_by IS NULL THEN '\"}}' \
         ELSE '\"},\"facts\":{\"artifactPresent\":' || c.artifact_present::text || '}}' END";

/// Told in these words.
fn told(words: &str, data: &str) -> String {
    TOLD.replace("{words}", words).replace("{data}", data)
}

/// What was settled, then what was granted.
fn told_both() -> String {
    let either = |grant: &str, done: &str| format!("CASE WHEN c.grants THEN {grant} ELSE {done} END");
    let words = [("'granted'", "'done'"), ("'open'", "'active'"), ("'active'", "'done'")];
    told(&words.map(|(grant, done)| either(grant, done)).join(", "), &either(GRANT_DATA, DONE_DATA))
}

/// What the pieces stand for, then the numbers of the values.
fn finish(text: String, schema: &str, names: &[&str]) -> String {
    let pieces = [
        ("{may settle}", MAY_SETTLE),
        ("{lease end}", LEASE_END),
        ("{next row}", NEXT_ROW),
        ("{same_policy}", SAME_POLICY),
        ("{now}", NOW),
        ("{schema}", schema),
    ];
    let text = pieces.iter().fold(text, |text, (name, piece)| text.replace(name, piece));
    let text = ["c.now", "c.lease_expires_at"].iter().fold(text, |text, at| {
        let said = format!(
            "to_char(timestamp 'epoch' + {at} * interval '1 millisecond', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
        );
        text.replace(&format!("{{time of {at}}}"), &said)
    });
    let numbered =
        |text: String, (place, name): (usize, &&str)| text.replace(name, &format!("${}", place + 1));
    names.iter().enumerate().fold(text, numbered)
}

impl Texts {
    /// For a schema. Each answers with rows of: whether a claim was tried, whether this is the grant, the task.
    pub fn of(schema: &str) -> Self {
        let situation = |other: &str| SITUATION.replace("{other}", other);
        let picked = |only: &str| PICKED.replace("{if}", only);
        let claim = format!(
            "WITH {}, {}, {GRANTED}, {} SELECT a.same_policy AND a.key IS NOT NULL AND a.is_plain, true, c.t \
             FROM situation a LEFT JOIN changed c ON true",
            situation(""),
            picked("true"),
            told("'granted', 'open', 'active'", GRANT_DATA)
        );
        let done = format!(
            "WITH {SETTLED}, {} SELECT false, false, c.t FROM changed c",
            told("'done', 'active', 'done'", DONE_DATA)
        );
        // A claim that will be refused settles nothing, and what is not settled makes no room for a claim.
        let both = format!(
            "WITH {}, {HELD}, {}, {BOTH}, {} \
             SELECT a.same_policy AND a.is_plain AND EXISTS (SELECT 1 FROM held), c.grants, c.t \
             FROM situation a LEFT JOIN changed c ON true",
            situation("AND t.id <> @id"),
            picked("EXISTS (SELECT 1 FROM held)"),
            told_both()
        );
        Self {
            claim: finish(claim, schema, &[&COMMON[..], &CLAIM[..]].concat()),
            done: finish(done, schema, &[&COMMON[..], &DONE[..]].concat()),
            both: finish(both, schema, &[&COMMON[..], &DONE[..], &CLAIM[..]].concat()),
            blockers: super::sql::BLOCKERS_OF_GRANTS.replace("{schema}", schema),
            queue_name: super::sql::QUEUE_NAME.replace("{schema}", schema),
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
        vec![&self.queue, &self.auto, self.agent, &self.ttl_ms, self.host, self.head]
    }
}
