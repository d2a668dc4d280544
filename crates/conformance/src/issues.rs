//! What the supervisor keeps: issues as leases, the marks of its label, the pin, and a tracker of the store's own.

use rota_core::transition::Command;
use rota_core::{LeaseId, Status, Task, UnixMillis};

use crate::lab::{at, held, id};
use crate::{Lab, Subject};
use rota_store::intents::Call;
use rota_store::intents::issues::{
    AddLocalIssue, Board, ClaimIssue, ClaimedIssue, CloseIssue, EditIssue, EditLocalIssue, Guard, Identify,
    KeepLeases, Mark, Note, NoteChange, NoteViolation, PinGovernance, Pinned, ReadRecord, ReopenIssue,
};

const SOURCE: &str = "gitea/o/r";

fn claim_issue<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, number: u64, agent: &str) -> ClaimIssue {
    ClaimIssue {
        call: lab.call(now),
        id: id(&format!("{SOURCE}#{number}")),
        source: SOURCE.into(),
        number,
        title: format!("Issue {number}"),
        agent: agent.into(),
        reopens: false,
    }
}

fn granted(claimed: ClaimedIssue) -> Task {
    match claimed {
        ClaimedIssue::Granted(task) => *task,
        other => panic!("{other:?}"),
    }
}

fn edit<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, guard: Guard, change: NoteChange) -> Option<Note> {
    let (call, id) = (lab.call(now), id(&format!("{SOURCE}#1")));
    let edited = lab.ok(&EditIssue { call, id, guard, command: None, changes: vec![change] });
    edited.map(|task| Note::of(&task).unwrap())
}

/// One supervisor has an issue, however many ask; another one only after the lease ran out.
pub fn an_issue_is_claimed_once<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let task = granted(lab.ok(&claim_issue(&lab, at(0), 1, "one")));
    assert_eq!((task.status, task.title.as_str()), (Status::Active, "Issue 1"));
    assert_eq!(Note::of(&task).unwrap().mark, Some(Mark::Wanted));
    assert_eq!(lab.another().ok(&claim_issue(&lab, at(1), 1, "two")), ClaimedIssue::NotNow);
    let board = lab.ok(&Board { call: lab.call(at(1)), source: SOURCE.into() });
    assert_eq!(board.issues.iter().map(|issue| issue.note.number).collect::<Vec<_>>(), [1]);
    let late = at(1 + board.lease_ms / 1_000);
    lab.ok(&KeepLeases { call: lab.call(at(2)), leases: vec![task.lease().unwrap()] });
    assert_eq!(lab.ok(&claim_issue(&lab, late, 1, "two")), ClaimedIssue::NotNow, "it was renewed");
    let much_later = at(3 * board.lease_ms / 1_000 + 3_600);
    let again = granted(lab.ok(&claim_issue(&lab, much_later, 1, "two")));
    let lost = lab.ok(&KeepLeases { call: lab.call(much_later), leases: vec![task.lease().unwrap()] });
    assert_eq!(lost, vec![task.lease().unwrap()]);
    assert_ne!(again.lease(), task.lease());
    lab.check();
}

/// A ceiling is told apart from an issue that somebody has, and a paused queue is full.
pub fn issues_keep_the_queues_ceiling<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues": {"issues": {"maxConcurrent": 1}}}"#);
    let first = granted(lab.ok(&claim_issue(&lab, at(1), 1, "one")));
    assert_eq!(lab.ok(&claim_issue(&lab, at(2), 2, "one")), ClaimedIssue::Full);
    assert!(lab.ok(&Board { call: lab.call(at(2)), source: SOURCE.into() }).is_full);
    lab.must(at(3), first.id.as_str(), Command::Release { caller: held(first.id.as_str(), 1) });
    assert!(!lab.ok(&Board { call: lab.call(at(4)), source: SOURCE.into() }).is_full);
    granted(lab.ok(&claim_issue(&lab, at(4), 2, "one")));
    lab.check();
}

/// Whoever lost the lease changes nothing, and two do not take one label away.
pub fn what_is_kept_with_an_issue_is_guarded<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let task = granted(lab.ok(&claim_issue(&lab, at(0), 1, "one")));
    let lease = task.lease().unwrap();
    let stale = LeaseId { fence: rota_core::Fence::new(99), ..lease.clone() };
    assert_eq!(edit(&lab, at(1), Guard::Lease(stale), NoteChange::LabelSet), None);
    assert_eq!(edit(&lab, at(1), Guard::Free, NoteChange::LabelSet), None, "it is held");
    let set = edit(&lab, at(1), Guard::Lease(lease.clone()), NoteChange::LabelSet).unwrap();
    assert_eq!(set.mark, Some(Mark::Set));
    lab.must(at(2), task.id.as_str(), Command::Release { caller: rota_core::Caller::lease(lease) });
    let leaving = |by: &str| NoteChange::LabelLeaving { by: by.into() };
    let mark = edit(&lab, at(3), Guard::Free, leaving("one")).unwrap().mark;
    assert_eq!(mark, Some(Mark::Leaving { by: "one".into(), at: at(3) }));
    assert_eq!(edit(&lab, at(4), Guard::Free, leaving("two")), None, "another does it");
    assert_eq!(lab.ok(&claim_issue(&lab, at(4), 1, "two")), ClaimedIssue::NotNow, "not before it is gone");
    let much_later = at(3_600);
    assert!(edit(&lab, much_later, Guard::Free, leaving("two")).is_some(), "the other one was killed");
    assert_eq!(edit(&lab, much_later, Guard::Any, NoteChange::LabelGone).unwrap().mark, None);
    lab.check();
}

/// An issue that is done stays done until somebody has seen it open again.
pub fn a_closed_issue_is_opened_again_on_purpose<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let task = granted(lab.ok(&claim_issue(&lab, at(0), 1, "one")));
    let closed = lab.ok(&CloseIssue { call: lab.call(at(1)), id: task.id.clone() });
    assert_eq!(closed.status, Status::Done);
    assert_eq!(lab.ok(&CloseIssue { call: lab.call(at(2)), id: task.id }).status, Status::Done, "twice");
    assert_eq!(lab.ok(&claim_issue(&lab, at(3), 1, "one")), ClaimedIssue::Done);
    assert!(lab.ok(&Board { call: lab.call(at(3)), source: SOURCE.into() }).issues.is_empty());
    granted(lab.ok(&ClaimIssue { reopens: true, ..claim_issue(&lab, at(4), 1, "one") }));
    lab.check();
}

/// The first pin stays unless somebody means to change it; violations are counted; each tracker has its own.
pub fn governance_is_pinned_once<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let pin = |sum: &str, only_first: bool, now: UnixMillis| {
        let files = [("docs/rules.md".to_owned(), sum.to_owned())].into();
        let reason = "the first start".to_owned();
        let pin = PinGovernance { call: lab.call(now), source: SOURCE.into(), files, only_first, reason };
        lab.ok(&pin)
    };
    let record = |source: &str| lab.ok(&ReadRecord { call: lab.call(at(9)), source: source.into() });
    assert_eq!(record(SOURCE), None);
    let seen = |pinned: Pinned| (pinned.files["docs/rules.md"].clone(), pinned.is_new);
    assert_eq!(seen(pin("a", true, at(0))), ("a".to_owned(), true));
    assert_eq!(seen(pin("b", true, at(1))), ("a".to_owned(), false), "the first one counts");
    assert_eq!(seen(pin("c", false, at(2))), ("c".to_owned(), true));
    for now in [3, 4] {
        let (call, message) = (lab.call(at(now)), "immutability".to_owned());
        lab.ok(&NoteViolation { call, source: SOURCE.into(), message });
    }
    let kept = record(SOURCE).unwrap();
    assert_eq!((kept.pin.unwrap()["docs/rules.md"].as_str(), kept.violations), ("c", 2));
    assert_eq!(record("github/o/r"), None);
    lab.check();
}

/// The store's own tracker: numbers without gaps, whoever adds, and a title that a board shows.
pub fn local_issues_have_numbers<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let add = |lab: &Lab<'_, S>, now: UnixMillis, title: &str| {
        let issue = AddLocalIssue {
            call: lab.call(now),
            source: "local".into(),
            title: title.into(),
            body: Some("Text".into()),
            labels: vec!["bug".into()],
        };
        lab.ok(&issue)
    };
    let added = [add(&lab, at(0), "A"), add(&lab.another(), at(0), "B"), add(&lab, at(1), "C")];
    assert_eq!(added.each_ref().map(|task| task.id.as_str()), ["issue-1", "issue-2", "issue-3"]);
    let board = lab.ok(&Board { call: lab.call(at(2)), source: "local".into() });
    let shown: Vec<_> = board.issues.iter().map(|one| (one.note.number, one.task.title.as_str())).collect();
    assert_eq!(shown, [(1, "A"), (2, "B"), (3, "C")]);
    assert_eq!(board.issues[0].note.labels, ["bug"]);
    lab.check();
}

/// A local issue is edited in place, opened again after it was closed, and brought back after it was parked.
pub fn local_issues_are_edited_and_opened_again<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let call = |now| Call { actor: Some("alice".into()), ..lab.call(at(now)) };
    let (title, body, labels) = ("A".to_owned(), Some("Text".to_owned()), Vec::new());
    let added = lab.ok(&AddLocalIssue { call: call(0), source: "local".into(), title, body, labels });
    assert_eq!(Note::of(&added).unwrap().author.as_deref(), Some("alice"));
    let edit = |now, title: Option<&str>, body: Option<&str>| {
        let (title, body) = (title.map(str::to_owned), body.map(str::to_owned));
        lab.ok(&EditLocalIssue { call: call(now), id: added.id.clone(), title, body })
    };
    let edited = edit(1, Some("B"), None);
    assert_eq!((edited.title.as_str(), edited.description.as_deref()), ("B", Some("Text")));
    assert_eq!(edit(2, None, Some("")).description, None);
    assert_eq!(edit(3, Some("B"), None).updated_at, at(2), "nothing changed");
    let reopen = |now| lab.ok(&ReopenIssue { call: call(now), id: added.id.clone() }).status;
    assert_eq!(reopen(4), Status::Open, "it was never closed");
    lab.ok(&CloseIssue { call: call(5), id: added.id.clone() });
    assert_eq!(reopen(6), Status::Open);
    lab.must(at(7), added.id.as_str(), Command::Cancel);
    assert_eq!(reopen(8), Status::Open);
    let caller = rota_core::Caller::default();
    lab.must(at(9), added.id.as_str(), Command::Park { caller, reason: "a question".into() });
    let back = EditIssue {
        call: call(10),
        id: added.id.clone(),
        guard: Guard::Free,
        command: Some(Command::Reset),
        changes: vec![NoteChange::GateRefusals(2), NoteChange::Told, NoteChange::BroughtBack],
    };
    let task = lab.ok(&back).unwrap();
    let note = Note::of(&task).unwrap();
    assert_eq!((task.status, note.brought_back, note.gate_refusals), (Status::Open, 1, 0));
    assert!(!note.is_told);
    lab.check();
}

/// The first name that is proposed for a store stays, per tracker.
pub fn a_store_has_one_name_per_tracker<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let identify = |lab: &Lab<'_, S>, source: &str, proposed: &str| {
        let (source, proposed) = (source.to_owned(), proposed.to_owned());
        lab.ok(&Identify { call: lab.call(at(0)), source, proposed })
    };
    assert_eq!(identify(&lab, SOURCE, "one"), "one");
    assert_eq!(identify(&lab.another(), SOURCE, "two"), "one");
    assert_eq!(identify(&lab, "github/o/r", "three"), "three");
    lab.check();
}
