"""Why a pod or a Job is as it is, told from what was really decided on a stage."""

from typing import Any

from msgspec import structs

from headroom.api import marks
from headroom.api.enforcement import QueuedUnit, QueueStatus
from headroom.core.budgets.explaining import Explained, explained, names
from headroom.core.budgets.wording import spoken
from headroom.model.decisions import Ref
from headroom.model.facts import Shape
from headroom.model.times import HOUR
from tests.builders import NOON, a_pod, a_ref
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running
from tests.sentences import Says


def told(stage: Stage, name: str, kind: str = "Pod") -> Explained:
    statuses = {ref: each.status for ref, each in stage.budgets.items()}
    found = explained(stage.world(), statuses, Ref(kind, "team-a", name))
    assert found is not None, f"nothing is known of {kind}/{name}"
    return found


def full(enforce: Any = "Evict", *, pods: int = 10, **more: Any) -> Stage:
    """Ten pods that have run for more than the window, and a quota of half an hour less than they use."""
    many = [running(f"train-{number}", 30 * HOUR) for number in range(pods)]
    return Stage(a_budget(hours="239.5", enforce=enforce), pods=[*many, *more.pop("others", ())], **more)


def test_evicted(says: Says) -> None:
    stage = full()
    stage.look()
    stage.look()
    found = told(stage, "train-0")
    assert (found.state, found.budget) == ("Evicted", "team-a/one")
    says(found.sentence)
    assert told(stage, "train-1").state == "Running"


def test_evicting(says: Says) -> None:
    stage = full()
    world = stage.world()
    stage.look()
    statuses = {ref: each.status for ref, each in stage.budgets.items()}
    found = explained(world, statuses, Ref("Pod", "team-a", "train-0"))
    assert found is not None
    assert (found.state, found.budget) == ("Evicting", "team-a/one")
    says(found.sentence)


def test_paused(says: Says) -> None:
    stage = full("Pause")
    stage.look()
    assert (told(stage, "train-3").state, told(stage, "train-3").budget) == ("Paused", "team-a/one")
    says(told(stage, "train-3").sentence)


def test_paused_by_a_budget_that_is_gone(says: Says) -> None:
    stage = full("Pause")
    stage.look()
    stage.budgets.clear()
    assert told(stage, "train-3").state == "Paused"
    says(told(stage, "train-3").sentence)


def test_suspended_jobs_and_their_pods_that_are_gone(says: Says) -> None:
    stage = Stage(
        a_budget(hours="239.5", enforce="Suspend"),
        pods=[running(f"fit-{number}", 30 * HOUR, gpus=5, owner=of_job("fit")) for number in range(2)],
    )
    stage.look()
    stage.pass_time(1000)
    job, pod = told(stage, "fit", "Job"), told(stage, "fit-1")
    assert job.state == pod.state == "Suspended"
    assert job.budget == pod.budget == "team-a/one"
    says(job.sentence, pod.sentence, *job.details)


def test_held_and_in_no_queue_that_is_shown(says: Says) -> None:
    stage = full("Hold", others=[gated("late")])
    assert (told(stage, "late").state, told(stage, "late").starts_at) == ("Held", "")
    says(told(stage, "late").sentence)
    budget = stage.budgets[a_ref()]
    queue = tuple(QueuedUnit(unit=f"Pod/team-a/p{number}", gpus="1") for number in range(10))
    status = structs.replace(budget.status, consumed_gpu_hours="240", held=QueueStatus(units=31, pods=31, queue=queue))
    stage.budgets[a_ref()] = structs.replace(budget, status=status)
    says(told(stage, "late").sentence)


def test_held_by_a_budget_that_is_gone_or_paused(says: Says) -> None:
    stage = full("Hold", others=[gated("late")])
    stage.budgets = {a_ref(): a_budget(enforce="Hold", paused=True)}
    says(told(stage, "late").sentence)
    stage.budgets.clear()
    assert (told(stage, "late").state, told(stage, "late").budget) == ("Held", "team-a/one")
    says(told(stage, "late").sentence)


def test_nothing_is_promised_while_everything_is_stopped(says: Says) -> None:
    stage = full("Hold", others=[gated("late")])
    stage.look()
    stage.more["stopped"] = True
    found = told(stage, "late")
    says(found.sentence, *found.details)


def test_of_two_budgets_the_fuller_one_is_named() -> None:
    stage = full("Hold", others=[gated("late")])
    stage.budgets[a_ref(name="two")] = a_budget("two", hours="1000", enforce="Hold")
    stage.look()
    found = told(stage, "late")
    assert found.budget == "team-a/one"
    assert [each.split(":")[0] for each in found.details if each.startswith("budget")] == [
        "budget team-a/one",
        "budget team-a/two",
    ]


def test_of_two_budgets_the_one_that_never_fits_is_named(says: Says) -> None:
    stage = full("Hold", others=[gated("big", gpus=500)])
    stage.budgets[a_ref(name="two")] = a_budget("two", hours="400", enforce="Hold")
    stage.look()
    found = told(stage, "big")
    assert (found.state, found.budget) == ("NeverFits", "team-a/one")
    says(found.sentence)


def test_a_gang_is_told_of_as_one(says: Says) -> None:
    ranks = [gated(f"fit-{number}", gpus=8, owner=of_job("fit")) for number in range(3)]
    stage = full("Hold", others=ranks)
    stage.look()
    found = told(stage, "fit", "Job")
    assert (found.state, found.budget) == ("Held", "team-a/one")
    says(found.sentence, *told(stage, "fit-0").details)


def test_what_no_budget_holds(says: Says) -> None:
    foreign = a_pod("kueued", labels=TEAM, gates=("kueue.x-k8s.io/admission",))
    placed = a_pod("placed", labels=TEAM, node="n7")
    plain = a_pod("plain", labels=TEAM)
    ended = running("over", HOUR, phase="Succeeded", ended=NOON - 1000, ended_by="ContainerFinish")
    other = running("other", HOUR, labels=(("team", "b"),))
    volcanic = structs.replace(a_pod("volcanic", labels=TEAM), shape=Shape(scheduler="volcano"))
    stage = Stage(a_budget(), pods=[foreign, placed, plain, ended, other, volcanic])
    for name in ("kueued", "placed", "plain", "volcanic"):
        assert told(stage, name).state == "Pending"
        says(told(stage, name).sentence)
    assert told(stage, "over").state == "Ended"
    says(told(stage, "over").sentence)
    assert told(stage, "other").sentence.endswith("; no budget counts it.")


def test_two_budgets_count_a_pod_that_runs(says: Says) -> None:
    stage = Stage(a_budget(), a_budget("two"), pods=[running("train", HOUR)])
    assert told(stage, "train").state == "Running"
    says(told(stage, "train").sentence)


def test_what_was_let_go_says_when(says: Says) -> None:
    stage = Stage(a_budget(enforce="Hold"), pods=[gated("late")])
    stage.look()
    says(*told(stage, "late").details)


def test_nothing_is_known_of_what_is_not_there() -> None:
    stage = full()
    stage.look()
    stage.look()
    statuses = {ref: each.status for ref, each in stage.budgets.items()}
    assert explained(stage.world(), statuses, Ref("Pod", "team-a", "none")) is None
    assert explained(stage.world(), statuses, Ref("Job", "team-a", "train-1")) is None
    assert {"team-a/train-0", "team-a/train-9"} <= names(stage.world(), statuses, "Pod")
    assert names(stage.world(), statuses, "Job") == set()


def test_hostile_words_in_a_status_do_no_harm(says: Says) -> None:
    stage = full("Hold", others=[gated("late", annotations=((marks.HELD_BY, "nonsense"),))])
    stage.look()
    budget = stage.budgets[a_ref()]
    status = structs.replace(budget.status, consumed_gpu_hours="NaN")
    stage.budgets[a_ref()] = structs.replace(budget, status=status)
    says(told(stage, "late").sentence)


def test_the_numbers_of_when_the_hold_began_are_not_those_of_the_pod() -> None:
    """The hold keeps its first reason, so a younger pod carries numbers and a forecast from before it existed."""
    stale = "Over quota: 240.3 of 240 GPU-hours. Back under quota at 10:45."
    notes = ((marks.HELD_BY, "team-a/one"), (marks.HELD_BECAUSE, stale))
    stage = full("Hold", others=[gated("late", annotations=notes)])
    stage.look()
    details = told(stage, "late").details
    assert "queued by budget team-a/one when it was created" in details
    assert not [each for each in details if "10:45" in each or "240.3" in each]


def test_lengths_are_spoken() -> None:
    assert [spoken(each * 1000) for each in (0, 59, 60, 3600, 5400, 3661, 100_000)] == [
        "0s",
        "59s",
        "1m",
        "1h",
        "1h 30m",
        "1h 1m 1s",
        "1d 3h 46m 40s",
    ]


def test_of_a_pending_pod_it_is_said_that_no_budget_counts_it() -> None:
    stage = Stage(a_budget(), pods=[a_pod("stray"), a_pod("counted", labels=TEAM), running("other", HOUR, labels=())])
    assert "no budget counts it" in told(stage, "stray").details
    assert "no budget counts it" not in told(stage, "counted").details
    assert told(stage, "other").sentence.endswith("; no budget counts it.")
    assert "no budget counts it" not in told(stage, "other").details, "the sentence says so"


def test_what_is_never_stopped_says_by_whose_word(says: Says) -> None:
    def details(**fields: Any) -> tuple[str, ...]:
        pod = running("kept", HOUR, **fields)
        found = explained(Stage(a_budget(), pods=[pod]).world(), {}, Ref("Pod", pod.namespace, "kept"))
        assert found is not None
        return found.details

    kept = (
        details(annotations=((marks.PROTECTED, "true"),)),
        details(owner=of_job("agent", "DaemonSet"), gpus=0),
        details(namespace="kube-system"),
        details(namespace="headroom-system"),
    )
    for each in kept:
        (said,) = [detail for detail in each if detail.startswith("protected")]
        says(said)
    assert not [each for each in details(annotations=((marks.PROTECTED, "false"),)) if each.startswith("protected")]


def test_a_length_that_cannot_be_read_is_named(says: Says) -> None:
    word = ((marks.HELD_BY, "team-a/one"), (marks.EXPECTED_DURATION, "two hours"))
    stage = full("Hold", others=[gated("late", annotations=word)])
    stage.look()
    details = told(stage, "late").details
    assert any("headroom.dev/expected-duration, 'two hours'" in each for each in details)
    says(*details)
