"""What a child can be asked to do, by name."""

from __future__ import annotations

from enum import StrEnum


class Task(StrEnum):
    """A job of a child process; `jobs.DOES` has the function that does it."""

    DESCRIBE = "describe_machine"
    LOOK = "check_contract"
    DUE = "list_due"
    DEMO = "show_demo"
    VERIFY = "verify_snippet"
    GLANCE = "glance_at_snippet"
    JUDGE = "judge_snippet"
    TIME = "time_snippet"
    COMPILE = "compile_snippet"
    VIEW = "view_snippet"
    SPACE = "survey_space"
    REACH = "reach_architecture"
