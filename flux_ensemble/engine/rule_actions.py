"""The actions of a rule: expressions are filled in when the rule fires, and actions run in order.

A rule fires with all of its actions or with none: if an expression has no value that fits, no
action is performed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flux_ensemble.document.model import Action, Rule
from flux_ensemble.engine.actions import Actions
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.job_changes import further_triggers
from flux_ensemble.engine.pending import Origin
from flux_ensemble.engine.render import action_json
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue
from flux_ensemble.metrics.conditions import Variable


class RuleActions:
    """Fires the rules of one engine."""

    def __init__(self, core: Core, actions: Actions) -> None:
        self._core = core
        self._actions = actions

    def fire(
        self, state: RuleState, cause: Cause, values: Callable[[Variable], Any]
    ) -> Iterable[TriggerQueue]:
        """Run the actions of a rule, once.

        Args:
            state: the rule.
            cause: the cause of the firing.
            values: returns the value of a variable in the actions' expressions.
        """
        actions = list(state.rule.actions)
        # All actions are filled in before any is performed: if one cannot be, none is.
        for position, filling in enumerate(state.fillings):
            if filling is not None:
                params = None if cause.job is None else cause.job.params
                try:
                    actions[position] = filling.fill(actions[position], values, params)
                except ValueError as error:
                    self._unfilled(state, actions[position], cause, error)
                    return ()
        if len(actions) == 1:
            return self._fire(state, actions[0], cause)
        return self._fire_all(state, actions, cause)

    def _unfilled(self, state: RuleState, action: Action, cause: Cause, error: ValueError) -> None:
        """Record the failure of an action with an expression that has no value that fits."""
        origin = _origin(state, cause)
        self._actions.record_firing(origin, action_json(action), state.rule.title, cause.event)
        self._actions.failed(origin, f"{action.name} {action.label or ''}".rstrip() + f": {error}")

    def _fire_all(
        self, state: RuleState, actions: Iterable[Action], cause: Cause
    ) -> Iterator[TriggerQueue]:
        """Run several actions; the rules that one triggers are evaluated before the next one."""
        for action in actions:
            if not self._core.acting:
                return
            yield from self._fire(state, action, cause)

    def _fire(self, state: RuleState, action: Action, cause: Cause) -> Iterable[TriggerQueue]:
        rule, origin, told = state.rule, _origin(state, cause), None
        if action.name == "custom":
            told = {**cause.event, "trigger": _trigger(rule, cause)}
            if cause.job is not None:
                told.update(cause.job.told())
        # The JSON of an action is kept only if the action can run again unchanged.
        again = state.live and not any(state.fillings)
        return self._actions.run(origin, action, rule.title, cause.event, told, again=again)


def _origin(state: RuleState, cause: Cause) -> Origin:
    """Return the origin of a new firing of a rule."""
    groups = state.groups
    if cause.group is not None and cause.group not in groups:
        groups = (*groups, cause.group)
    if cause.combinations:
        groups = (*groups, *cause.combinations)
    return Origin(state.rule.id, state.next_number(), cause.chain, None, groups, cause.member)


def _trigger(rule: Rule, cause: Cause) -> str:
    """Return the trigger of a rule that a cause matches, for a rule with several triggers."""
    triggers = (str(cause.event["trigger"]), *further_triggers(cause.news))
    return next((trigger for trigger in triggers if trigger in rule.triggers), rule.trigger)
