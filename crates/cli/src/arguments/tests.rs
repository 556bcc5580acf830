use super::CommandLine;
use clap::{CommandFactory, Parser};
use plimsoll_daemon::options::DaemonOptions;
use std::{fs, path::Path};

#[test]
fn the_command_line_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn the_help_of_all_is_one_screen() {
    let help = CommandLine::command().term_width(80).render_help().to_string();
    let rows: Vec<&str> = help.lines().collect();
    assert!(rows.len() <= 24, "{} rows\n{help}", rows.len());
    assert!(rows.iter().all(|row| row.len() <= 80), "{help}");
    assert!(!rows.iter().any(|row| row.starts_with("            ")), "a row is wrapped\n{help}");
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

/// Each `plimsoll ...` of a page, in inline code and in blocks of commands.
fn commands(page: &str) -> Vec<String> {
    let fenced = page.split("```").skip(1).step_by(2);
    let typed = fenced.flat_map(str::lines).map(|line| line.strip_prefix("sudo ").unwrap_or(line));
    let inline = page.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
    let words = typed.chain(inline).map(|code| code.split_whitespace().collect::<Vec<_>>().join(" "));
    words.filter(|code| code.starts_with("plimsoll ")).collect()
}

/// What is wrong with a command. Its last words may be missing, a number may be named, and the shell may do more with it.
fn wrong(command: &str) -> Option<clap::Error> {
    let words =
        command.split(' ').take_while(|word| !["#", "|", ">"].contains(word) && !word.starts_with('<'));
    let named = words.map(|word| if word == "PID..." { "1" } else { word });
    CommandLine::try_parse_from(named).err().filter(|error| {
        use clap::error::ErrorKind::{
            DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand,
        };
        ![DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand]
            .contains(&error.kind())
    })
}

#[test]
fn each_command_that_a_page_names_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = listed.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let pages: Vec<_> = pages.chain([root.join("README.md")]).collect();
    let named = pages.iter().flat_map(|page| commands(&fs::read_to_string(page).unwrap()));
    let found: Vec<_> = named.filter_map(|command| Some((wrong(&command)?.kind(), command))).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_command_or_an_option_that_is_not_there_is_found_on_a_page() {
    let page = "`plimsoll limit\nshow`, `plimsoll frag --deep`\n```sh run\nsudo plimsoll why 1 > a\nplimsoll jobs 1\n```\n\
        `plimsoll bench drift`, `plimsoll kill --expedite PID...`, `plimsoll limit set`\n";
    let found: Vec<String> = commands(page).into_iter().filter(|command| wrong(command).is_some()).collect();
    assert_eq!(found, ["plimsoll jobs 1", "plimsoll frag --deep", "plimsoll bench drift"]);
}

#[test]
fn each_bench_that_there_is_can_be_named() {
    use clap::ValueEnum as _;
    let named =
        crate::commands::bench::Name::value_variants().iter().filter_map(|name| name.to_possible_value());
    let named: Vec<String> = named.map(|name| name.get_name().to_owned()).collect();
    assert_eq!(named, plimsoll_bench::NAMES);
}
