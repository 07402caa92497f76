"""Entry point of the `shelf` command.

It stays free of imports: every child of the fork server imports the parent's main module again.
"""


def main() -> None:
    """Run the command line and exit with its status (0 well, 1 something found, 2 wrong usage)."""
    from warpshelf.cli.commands import run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
