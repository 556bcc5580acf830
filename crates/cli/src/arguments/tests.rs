use super::CommandLine;
use clap::{CommandFactory, Parser};
use plimsoll_daemon::options::DaemonOptions;

#[test]
fn the_command_line_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn every_command_and_option_has_a_help_text() {
    fn check(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    check(&CommandLine::command());
}

#[test]
fn a_daemon_without_options_has_the_default_places() {
    let line = CommandLine::try_parse_from(["plimsoll", "daemon", "--socket", "/run/plimsoll/control.sock"])
        .unwrap();
    let super::Command::Daemon(arguments) = line.command else { panic!() };
    assert_eq!(arguments.options(line.socket), DaemonOptions::default());
}
