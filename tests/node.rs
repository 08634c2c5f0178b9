//! The promises that only a whole node can keep: under its own systemd, with a real container runtime,
//! through stops, crashes, reboots and power cuts. `tests/support/packages node` installs what this needs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // how a test fails
#![allow(clippy::wildcard_imports)] // `product` is the vocabulary of every case

mod support;
mod node {
    pub mod answers;
    pub mod boots;
    pub mod delegate;
    pub mod exhaustion;
    pub mod faults;
    pub mod firewalls;
    pub mod gate;
    pub mod guard;
    pub mod harness;
    pub mod load;
    pub mod metrics;
    pub mod pods;
    mod product;
    pub mod upgrade;
    pub mod waiting;
}

use std::process::ExitCode;

use libtest_mimic::Arguments;
use node::*;

fn main() -> ExitCode {
    support::case::keep_panics();
    let mut arguments = Arguments::from_args();
    // A node is mostly waiting: two at a time, on however few processors.
    arguments.test_threads.get_or_insert(2);
    let cases = cases![
        answers::the_doctor_finds_what_keeps_pods_from_their_network,
        answers::the_doctor_finds_a_full_subnet_owed_deletions_and_a_namespace_without_a_name,
        answers::a_pods_story_is_found_by_its_name_and_by_its_trace,
        answers::explain_tells_of_a_pod_by_any_of_its_names_also_when_it_is_gone,
        answers::what_is_logged_is_changed_while_the_server_runs,
        harness::a_node_keeps_its_disk_through_a_reboot_and_a_power_cut,
        gate::at_boot_the_conf_is_absent_until_the_server_is_ready,
        gate::a_stop_takes_the_conf_before_the_server_and_pods_keep_their_network,
        gate::a_killed_server_loses_the_conf_and_comes_back_with_it,
        gate::a_planned_restart_keeps_the_conf_and_answers_what_was_asked_meanwhile,
        gate::a_restart_that_takes_longer_than_the_grace_gives_the_conf_up,
        gate::a_restart_into_a_bad_configuration_gives_the_conf_up,
        gate::a_socket_that_goes_takes_the_conf_with_it_also_when_it_cannot_come_back,
        gate::with_the_strict_policy_a_restart_takes_the_conf_and_brings_it,
        gate::a_bad_configuration_fails_with_its_reason_and_places_nothing,
        gate::a_foreign_file_at_the_confs_path_is_never_touched,
        gate::told_to_wait_hostcni_places_its_conf_once_the_foreign_file_is_gone,
        waiting::requests_during_a_slow_start_are_answered_by_the_server_that_comes,
        waiting::requests_during_an_auto_restart_are_answered_by_the_server_that_comes,
        exhaustion::two_thousand_idle_and_slow_peers_keep_nobody_from_their_del,
        exhaustion::without_descriptors_requests_wait_and_are_served_when_there_are_some,
        load::restarts_kills_reloads_and_a_new_socket_under_load_lose_nothing,
        upgrade::an_older_build_is_replaced_under_load_and_comes_back,
        upgrade::a_del_that_another_build_spooled_is_carried_out,
        faults::every_step_of_a_request_may_fail_wait_or_die,
        faults::every_step_of_the_service_may_fail_wait_or_die,
        guard::what_somebody_does_to_the_conf_is_undone_at_once_and_told,
        guard::a_conf_that_cannot_be_restored_is_told_of_and_restored_as_soon_as_it_can,
        guard::from_another_writer_hostcni_stands_back_and_says_so,
        boots::a_reboot_answers_every_last_del_and_the_next_boot_is_clean,
        boots::a_reboot_with_pods_that_nobody_deletes_leaves_no_lease,
        boots::after_a_power_cut_the_stale_conf_is_gone_before_any_unit_reads_it,
        boots::a_del_without_socket_is_spooled_and_carried_out_before_ready,
        pods::a_container_of_the_runtime_reaches_all_it_should_and_leaves_nothing,
        pods::a_pod_runs_and_goes_through_the_cri_with_its_ports,
        pods::a_pod_has_the_bandwidth_of_its_annotations,
        pods::a_runtime_started_first_follows_every_start_and_stop_within_a_second,
        pods::a_runtime_stays_ready_through_ten_restarts,
        pods::a_conf_that_is_a_list_is_loaded_as_well,
        firewalls::a_container_cannot_reach_what_its_network_blocks,
        firewalls::where_iptables_drops_what_is_forwarded_pods_pass_with_the_option,
        firewalls::firewalld_takes_the_bridge_into_its_zone_at_every_start_and_reload,
        metrics::metrics_are_off_until_somebody_wants_them_and_then_tell_what_happened,
        metrics::prometheus_reads_a_port_of_the_loopback_interface_and_no_other_is_taken,
        metrics::readers_who_say_nothing_or_nonsense_keep_no_request_waiting,
        delegate::addresses_leak_at_a_power_cut_without_hostcni_and_never_with_it,
        delegate::a_runtimes_pods_have_the_network_of_the_plugins_and_leave_nothing,
        delegate::an_outer_daemon_that_comes_late_goes_and_comes_back_gates_the_conf,
    ];
    libtest_mimic::run(&arguments, cases).exit_code()
}
