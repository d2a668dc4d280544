//! One suite for every store: what any of them must do, written once, run by each.
//!
//! A store's tests implement [`Subject`] and call `rota_conformance::conformance_suite!(subject)`, which makes one
//! `#[test]` per case. Nothing in here knows which store it runs on, and no future is expected to be ready at once.
//!
//! | to find out | look at |
//! |---|---|
//! | whether the tables agree with the journal and with core | [`check`] |
//! | what a claim must choose | [`oracle`] |
//! | how two stores are compared step by step | [`program`] |
//!
//! Every case names the property it guards: P1 to P10 and S1 to S10 are those of the reliability page.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by panicking")]

pub mod agents;
pub mod check;
pub mod claim;
pub mod edit;
pub mod families;
pub mod gateway;
pub mod giving_way;
pub mod graph;
pub mod inheritance;
pub mod issues;
pub mod iterate;
pub mod journal;
pub mod lab;
pub mod leases;
pub mod oracle;
pub mod picture;
pub mod plan;
pub mod policies;
pub mod program;
pub mod races;
pub mod reads;
pub mod reclaim;
pub mod sched;
pub mod settle;
pub mod sync_leases;
pub mod tokens;

use std::future::Future;

use rota_store::Store;

pub use check::check_everything;
pub use lab::Lab;
pub use picture::{Picture, Snapshot};

/// A store under test.
pub trait Subject: Sync {
    /// Its type.
    type Store: Store;

    /// A new, empty store.
    fn fresh(&self) -> Self::Store;

    /// The same store seen through a handle of its own, as another process would have it.
    fn another(&self, store: &Self::Store) -> Self::Store;

    /// Whether its transactions run one after the other, so that the journal is in the order of commits.
    fn is_serial(&self) -> bool {
        true
    }

    /// How many rounds a race has. A store that lets one transaction in at a time needs few.
    fn rounds(&self) -> usize {
        500
    }

    /// Runs a future to its end on whatever the store needs to make progress.
    fn block_on<F: Future>(&self, future: F) -> F::Output;
}

/// Makes one test of every case, for the subject that the expression makes.
#[macro_export]
macro_rules! conformance_suite {
    ($subject:expr) => {
        $crate::conformance_tests! { $subject;
            graph {
                adding_fills_in_what_the_queue_says
                a_batch_is_added_whole_or_not_at_all
                tasks_from_elsewhere_bring_their_past
                edges_inside_a_batch_may_point_forward
                what_cannot_be_added_is_refused
                blocking_and_unblocking
                circles_are_refused_with_their_path
                a_fan_in_waits_for_its_last_blocker
                a_blocker_that_ends_badly_still_blocks
                deleting_and_undeleting_a_blocker
                hierarchies_wait_for_the_parent_and_have_a_limit
                a_long_chain_and_a_wide_fan
            }
            claim {
                order_is_priority_then_age_then_insertion
                scores_and_the_guard_decide_inside_a_priority
                the_longest_waiting_may_stand_behind_its_buckets_head
                a_claim_may_be_for_many
                filters_narrow_the_choice
                a_claim_by_id_is_granted_or_explained
                hosts_keep_their_trees
                the_lease_has_its_length_and_its_holder
                a_full_kind_hides_nothing
                unknown_queues_are_refused_and_known_ones_may_be_empty
                grants_bring_the_blockers_results
                random_backlogs_are_chosen_from_as_core_would
            }
            leases {
                a_zombie_is_refused_four_times
                fences_grow_for_ever
                an_expired_lease_is_the_holders_until_it_is_taken_back
                naming_somebody_else_is_refused
                a_queue_may_require_the_lease
                an_ended_lease_settles_nothing
            }
            reclaim {
                a_lost_attempt_is_counted_and_backs_off
                attempts_run_out_and_only_reset_brings_back
                a_refused_claim_by_id_takes_its_lease_back
                counts_may_be_turned_off
                explicit_reclaim_leaves_expired_leases_alone
                a_ceiling_counts_expired_leases_until_reclaimed
                ceilings_per_queue_and_kind_are_never_exceeded
                a_paused_queue_grants_nothing
                a_now_before_everything_stored
                more_expired_leases_than_a_batch
                more_cooling_tasks_than_a_batch
                rate_limited_ends_wait_and_park
            }
            settle {
                a_batch_settles_each_step_by_itself
                settling_and_claiming_the_next_in_one_go
                a_refused_step_claims_nothing
                the_next_lease_is_the_claimants
                a_refused_next_claim_settles_nothing
                every_end_of_an_attempt
                results_are_kept_as_given
            }
            plan {
                a_second_run_changes_nothing
                fields_edges_and_removals
                a_removed_task_ends_its_lease
                a_deleted_task_is_revived
                bad_plans_change_nothing
                circles_name_the_line
                a_dry_run_only_counts
                ten_thousand_lines
                specs_bound_what_may_be_lost
            }
            iterate {
                a_grant_begins_an_iteration
                completing_brings_the_children
                a_bad_child_completes_nothing
                an_invalidated_child_is_revived
                artifacts_are_awaited
                lapsed_leases_and_the_backlog
            }
            tokens {
                a_future_now_is_only_for_reading
                a_token_knows_its_kin
                agents_create_linked_tasks
                agents_add_a_bounded_number_of_children
            }
            giving_way {
                a_failing_loop_gives_way_to_a_fresh_one
                a_loop_keeps_its_lease_where_giving_way_helps_nobody
                the_next_iteration_looks_at_pause_and_block
                loops_return_by_a_ramp_after_a_block
                upstreams_bound_their_loops_where_no_gateway_does
                a_limit_counts_from_the_iterations_start
                a_limited_loop_waits_as_configured
                a_grant_checks_the_artifact
                a_loop_that_fails_fast_cools_down
            }
            inheritance {
                loops_inherit_a_trees_priority
                a_child_made_from_the_same_is_kept
            }
            edit {
                fields_change_and_done_is_immutable
                a_status_is_reached_through_the_state_machine
                a_held_tasks_status_needs_its_holder
                deleting_many_by_filter
                a_new_priority_moves_the_task
            }
            families {
                orphans_fail_with_all_below_them
                children_of_earlier_iterations_go
                reiterating_invalidates_all_below
                cancelling_gives_up_a_tree
                a_tree_moves_as_a_whole
                trees_are_shown_depth_first
                branches_are_finished_before_new_ones_begin
                kinds_have_their_ceilings
            }
            agents {
                agents_register_and_stop
                blocks_are_kept_per_upstream
                scopes_do_not_see_each_other
            }
            gateway {
                usage_adds_up
                leases_have_a_level
                gate_tokens_are_found_until_they_expire
                the_longer_block_counts
                an_expired_lease_has_no_level
                usage_stays_within_bounds
                a_spent_task_is_parked
                a_spent_budget_is_a_wait
            }
            issues {
                an_issue_is_claimed_once
                issues_keep_the_queues_ceiling
                what_is_kept_with_an_issue_is_guarded
                a_closed_issue_is_opened_again_on_purpose
                governance_is_pinned_once
                local_issues_have_numbers
                local_issues_are_edited_and_opened_again
                a_store_has_one_name_per_tracker
            }
            sync_leases {
                a_loop_manager_asks_for_all_at_once
                ends_free_places_for_others
                a_completion_that_cannot_be_undoes_the_request
                the_worktree_limit_holds_over_one_request
                a_spent_budget_excuses_an_end
                a_look_writes_nothing
            }
            policies {
                publishing_versions_and_conflicts
                a_new_score_reorders_the_backlog
                a_new_ceiling_holds_for_the_next_claim
                decisions_carry_the_policys_version
            }
            sched {
                a_plan_is_what_a_lease_grants
                a_plan_counts_what_it_does_not_list
                a_plan_changes_nothing
                leases_without_a_limit_go_up_to_the_ceiling
                only_parked_entries_are_reset
                draining_goes_around_the_policy
                ceilings_hold_for_random_policies_and_histories
            }
            journal {
                every_change_is_an_event_and_refusals_are_none
                numbers_have_no_gaps_and_the_journal_folds
                readers_page_through_and_miss_nothing
                a_dropped_transaction_leaves_nothing
                what_others_wrote_is_seen
            }
            reads {
                peek_shows_what_claims_would_grant
                peek_shows_a_lost_lease_once
                peek_leaves_out_what_a_claim_would_not_have
                why_and_the_claim_agree
                lists_and_counts
                the_tree_of_blockers
                a_glance_agrees_with_the_counts
                pages_show_each_task_as_it_is
            }
            races {
                renew_against_reclaim
                both_last_blockers_at_once
                showing_while_a_blocker_comes_and_goes
                two_halves_of_a_circle
                blocking_while_claiming
                deleting_and_undeleting_while_claiming
                deleting_a_parent_while_children_come
                claimers_share_a_ceiling
            }
        }
    };
}

/// The part of [`conformance_suite!`] that writes the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr; $($theme:ident { $($case:ident)* })*) => {
        $(mod $theme {
            #[allow(unused_imports, reason = "the subject's expression may not need it")]
            use super::*;
            $(#[test]
            fn $case() {
                $crate::$theme::$case(&$subject);
            })*
        })*
    };
}

#[cfg(test)]
mod tests {
    /// The suite's list names every case, that is, every public function whose only argument is a subject.
    #[test]
    fn the_suite_names_every_case() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let list = std::fs::read_to_string(folder.join("lib.rs")).unwrap();
        let mut cases = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for line in text.lines().filter(|line| line.ends_with("<S: Subject>(subject: &S) {")) {
                let name = line.trim_start_matches("pub fn ").split('<').next().unwrap();
                assert!(
                    list.lines().any(|listed| listed.trim() == name),
                    "{name} is not in the suite's list"
                );
                cases += 1;
            }
        }
        assert!(cases > 60, "{cases} cases were found");
    }
}
