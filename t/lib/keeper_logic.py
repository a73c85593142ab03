"""The keeper's logic, tested without Flux by whatever Python runs this: 3.6 or newer.

    python3.6 t/lib/keeper_logic.py

It is the only file of the service that Flux's own Python has to run, however old that is.
"""

import importlib.util
import os
import sys
import tempfile
import unittest
from typing import Any

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "flux_ensemble")


def load(name: str) -> Any:
    """A file of flux_ensemble/modules, as Flux imports it."""
    path = os.path.join(PACKAGE, "modules", name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


keeper = load("ensemble-keeper")


class TestSilence(unittest.TestCase):
    """A service that is asked and does not answer."""

    def test_one_that_answers_is_never_silent_and_one_that_does_not_is_in_time(self) -> None:
        silence = keeper.Silence(120.0)
        for now in range(0, 1000, 10):
            self.assertFalse(silence.is_silent(float(now)))
            self.assertTrue(silence.ask(float(now)))
            silence.answered()
        self.assertTrue(silence.ask(1000.0))
        found = [silence.is_silent(float(now)) for now in range(1000, 1130, 10)]
        self.assertEqual(found, [False] * 12 + [True])
        self.assertFalse(silence.ask(1130.0))

    def test_time_in_which_nobody_looked_does_not_count(self) -> None:
        silence = keeper.Silence(120.0)
        silence.is_silent(0.0)
        silence.ask(0.0)
        self.assertFalse(silence.is_silent(10.0))
        self.assertFalse(silence.is_silent(5000.0))
        self.assertFalse(silence.is_silent(5010.0))

    def test_another_service_begins_anew(self) -> None:
        silence = keeper.Silence(120.0)
        silence.ask(0.0)
        silence.forget()
        self.assertFalse(silence.is_silent(500.0))
        self.assertTrue(silence.ask(500.0))


class TestRestarts(unittest.TestCase):
    """Pauses, and the end of it."""

    def pauses(self, restarts: Any, lives: Any) -> Any:
        """The pause after each life, which begins when the pause before it is over."""
        now, pauses = 0.0, []
        for life in lives:
            now += life
            pause = restarts.after(now, life)
            pauses.append(pause)
            now += pause or 0.0
        return pauses

    def test_the_first_restart_is_at_once_and_the_pauses_grow_to_the_longest(self) -> None:
        restarts = keeper.Restarts(10, 300.0, 5.0)
        expected = [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
        self.assertEqual(self.pauses(restarts, [1.0] * 7), expected)

    def test_a_long_life_makes_the_next_restart_immediate(self) -> None:
        restarts = keeper.Restarts(10, 300.0, 5.0)
        self.assertEqual(
            self.pauses(restarts, [1.0, 1.0, 1.0, 60.0, 1.0, 1.0]), [0.0, 0.5, 1.0, 0.0, 0.0, 0.5]
        )

    def test_it_gives_up_after_so_many_deaths_within_the_time(self) -> None:
        restarts = keeper.Restarts(3, 300.0, 5.0)
        self.assertEqual(self.pauses(restarts, [100.0, 100.0, 99.0]), [0.0, 0.0, None])

    def test_deaths_that_are_long_ago_are_forgotten(self) -> None:
        restarts = keeper.Restarts(3, 300.0, 5.0)
        self.assertEqual(self.pauses(restarts, [200.0] * 20), [0.0] * 20)

    def test_what_fails_at_each_start_is_given_up_with_the_usual_numbers(self) -> None:
        # With pauses and with starts of up to 20 s.
        for seconds in (0.5, 20.0):
            pauses = self.pauses(keeper.Restarts(10, 300.0, 15.0), [seconds] * 10)
            self.assertIsNone(pauses[-1])
            self.assertNotIn(None, pauses[:-1])


class TestArguments(unittest.TestCase):
    """What Flux gives the module, and what the service gets."""

    def test_arguments_are_decoded(self) -> None:
        options = keeper.parse(["python=/a%20b/python3", "log-level=debug", "deaths=3"])
        self.assertEqual(options, {"python": "/a b/python3", "log-level": "debug", "deaths": "3"})
        self.assertEqual(keeper.parse([]), {})

    def test_what_is_no_argument_is_refused(self) -> None:
        for argument in (
            "colour=red",
            "python=",
            "python",
            "deaths=many",
            "deaths=²",
            "pause=1234567890",
            "pause=-1",
            "seconds=1.5",
        ):
            with self.assertRaises(ValueError):
                keeper.parse([argument])

    def test_the_command_takes_nothing_from_the_working_directory(self) -> None:
        command = keeper.command("/env/bin/python3", "debug")
        self.assertEqual(command[:4], ["/env/bin/python3", "-P", "-m", "flux_ensemble.cli.main"])
        self.assertEqual(command[4:], ["serve", "--log-level", "debug", "--keeper"])

    def test_the_environment_has_the_uri_and_nothing_of_fluxs_python(self) -> None:
        given = {"PATH": "/bin", "PYTHONPATH": "/flux", "FLUX_MODULE_URI": "x", "FLUX_URI": "old"}
        expected = {"PATH": "/bin", "FLUX_URI": "local:///run/local"}
        self.assertEqual(keeper.environment(given, "local:///run/local"), expected)

    def test_the_python_is_that_of_the_environment_that_the_file_lies_in(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "bin"))
            python = os.path.join(root, "bin", "python3.11")
            os.symlink(sys.executable, python)
            parts = ["lib", "python3.11", "site-packages", "flux_ensemble", "modules", "k.py"]
            self.assertEqual(keeper.find_python(os.path.join(root, *parts)), python)

    def test_where_that_cannot_be_told_it_says_what_to_do(self) -> None:
        for file in ("/k.py", "/clone/flux_ensemble/modules/k.py"):
            with self.assertRaisesRegex(ValueError, "pass python=FILE"):
                keeper.find_python(file)

    def test_endings_are_named(self) -> None:
        self.assertEqual(keeper.ending(1), "exited with status 1")
        self.assertEqual(keeper.ending(-9), "was killed by SIGKILL")
        self.assertEqual(keeper.ending(-77), "was killed by signal 77")


class TestTheModule(unittest.TestCase):
    """The service's own module has to say that a Python is too old for it."""

    def test_it_can_be_read(self) -> None:
        self.assertEqual(load("ensemble").OLDEST, (3, 11))


if __name__ == "__main__":
    unittest.main()
