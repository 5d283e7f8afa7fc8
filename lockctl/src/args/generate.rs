//! Completion scripts and man pages, from the same definition as the command line.

use std::io;
use std::path::Path;

use clap::CommandFactory as _;

use crate::args::Args;

/// Returns the completion script of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "lockctl", &mut script);
    script
}

/// Returns the man page of the program.
pub(crate) fn man() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut page)?;
    Ok(page)
}

/// Writes the man pages of the program and of each command into a directory.
pub(crate) fn man_to(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Args::command().disable_help_subcommand(true), directory)
}
