"""Why a pod or a Job is as it is, told from what was really decided on a stage."""

from typing import Any

from msgspec import structs

from headroom.api import marks
from headroom.api.enforcement import Held, QueuedUnit
from headroom.core.budgets.explaining import Explained, explained, names
from headroom.core.budgets.wording import spoken
from headroom.model.decisions import Ref
from headroom.model.facts import Shape
from headroom.model.times import HOUR, text
from tests.builders import NOON, a_pod, a_ref
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running

USED = "240.000 of 239.5 GPU-hours used in the last 24 h"


def told(stage: Stage, name: str, kind: str = "Pod") -> Explained:
    statuses = {ref: each.status for ref, each in stage.budgets.items()}
    found = explained(stage.world(), statuses, Ref(kind, "team-a", name))
    assert found is not None, f"nothing is known of {kind}/{name}"
    return found


def full(enforce: Any = "Evict", *, pods: int = 10, **more: Any) -> Stage:
    """Ten pods that have run for more than the window, and a quota of half an hour less than they use."""
    many = [running(f"train-{number}", 30 * HOUR) for number in range(pods)]
    return Stage(a_budget(hours="239.5", enforce=enforce), pods=[*many, *more.pop("others", ())], **more)


def test_evicted() -> None:
    stage = full()
    stage.look()
    stage.look()
    found = told(stage, "train-0")
    assert (found.state, found.budget) == ("Evicted", "team-a/one")
    assert found.sentence == f"Pod team-a/train-0 was evicted at {text(NOON)} for budget team-a/one; now {USED}."
    assert told(stage, "train-1").state == "Running"


def test_evicting() -> None:
    stage = full()
    world = stage.world()
    stage.look()
    statuses = {ref: each.status for ref, each in stage.budgets.items()}
    found = explained(world, statuses, Ref("Pod", "team-a", "train-0"))
    assert found is not None
    assert found.sentence == f"Pod team-a/train-0 is being evicted since {text(NOON)} for budget team-a/one: {USED}."


def test_paused() -> None:
    stage = full("Pause")
    stage.look()
    assert told(stage, "train-3").sentence == (
        f"Pod team-a/train-3 runs, and is marked as paused since {text(NOON)} by budget team-a/one: {USED}; the mark goes once "
        "less than 95% of the quota is used."
    )


def test_paused_by_a_budget_that_is_gone() -> None:
    stage = full("Pause")
    stage.look()
    stage.budgets.clear()
    assert told(stage, "train-3").sentence.endswith("; the mark goes at the operator's next look.")


def test_suspended_jobs_and_their_pods_that_are_gone() -> None:
    stage = Stage(
        a_budget(hours="239.5", enforce="Suspend"),
        pods=[running(f"fit-{number}", 30 * HOUR, gpus=5, owner=of_job("fit")) for number in range(2)],
    )
    stage.look()
    stage.pass_time(1000)
    job, pod = told(stage, "fit", "Job"), told(stage, "fit-1")
    assert job.state == pod.state == "Suspended"
    assert job.sentence.startswith("Job team-a/fit is suspended for budget team-a/one: 2")
    assert pod.sentence.startswith(
        "Pod team-a/fit-1 is gone; by its name it is of Job team-a/fit, which is suspended for"
    )
    assert f"Job/team-a/fit suspended at {text(NOON + 1000)} for budget team-a/one: Stopped" in job.details


def test_held_and_in_no_queue_that_is_shown() -> None:
    stage = full("Hold", others=[gated("late")])
    assert told(stage, "late").sentence == (
        "Pod team-a/late is held by budget team-a/one: nothing is counted yet; the operator has not said yet when it may start."
    )
    budget = stage.budgets[a_ref()]
    queue = tuple(QueuedUnit(unit=f"Pod/team-a/p{number}", gpus="1") for number in range(10))
    status = structs.replace(budget.status, consumed_gpu_hours="240", held=Held(units=31, pods=31, queue=queue))
    stage.budgets[a_ref()] = structs.replace(budget, status=status)
    assert told(stage, "late").sentence.endswith(f"{USED}; 31 wait, and it is not among the first 10.")


def test_held_by_a_budget_that_is_gone_or_paused() -> None:
    stage = full("Hold", others=[gated("late")])
    stage.budgets = {a_ref(): a_budget(enforce="Hold", paused=True)}
    assert told(stage, "late").sentence.endswith("nothing is let go while that budget is paused.")
    stage.budgets.clear()
    assert told(stage, "late").sentence == (
        "Pod team-a/late is held by budget team-a/one, which is not there; it is let go at the operator's next look."
    )


def test_nothing_is_promised_while_everything_is_stopped() -> None:
    stage = full("Hold", others=[gated("late")])
    stage.look()
    stage.more["stopped"] = True
    found = told(stage, "late")
    assert found.sentence.endswith("nothing is let go while all effects are stopped.")
    assert "all effects are stopped cluster-wide; `headroom resume` ends that" in found.details


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


def test_of_two_budgets_the_one_that_never_fits_is_named() -> None:
    stage = full("Hold", others=[gated("big", gpus=500)])
    stage.budgets[a_ref(name="two")] = a_budget("two", hours="400", enforce="Hold")
    stage.look()
    found = told(stage, "big")
    assert (found.state, found.budget) == ("NeverFits", "team-a/one")
    assert "500 GPUs for 1h, which alone exceeds the quota of 239.5 GPU-hours of budget team-a/one" in found.sentence


def test_a_gang_is_told_of_as_one() -> None:
    ranks = [gated(f"fit-{number}", gpus=8, owner=of_job("fit")) for number in range(3)]
    stage = full("Hold", others=ranks)
    stage.look()
    found = told(stage, "fit", "Job")
    assert found.sentence.startswith("Job team-a/fit (3 of its 3 pods) is held by budget team-a/one: ")
    assert "unit: Job/team-a/fit, which starts and stops as one" in told(stage, "fit-0").details
    assert any("for 24 GPUs for 1h" in each for each in told(stage, "fit-0").details)


def test_what_no_budget_holds() -> None:
    foreign = a_pod("kueued", labels=TEAM, gates=("kueue.x-k8s.io/admission",))
    placed = a_pod("placed", labels=TEAM, node="n7")
    plain = a_pod("plain", labels=TEAM)
    ended = running("over", HOUR, phase="Succeeded", ended=NOON - 1000, ended_by="ContainerFinish")
    other = running("other", HOUR, labels=(("team", "b"),))
    volcanic = structs.replace(a_pod("volcanic", labels=TEAM), shape=Shape(scheduler="volcano"))
    stage = Stage(a_budget(), pods=[foreign, placed, plain, ended, other, volcanic])
    begin = "is pending, and no budget holds it: "
    assert told(stage, "kueued").sentence.endswith(
        f"{begin}its scheduling gate kueue.x-k8s.io/admission is somebody else's to lift."
    )
    assert told(stage, "placed").sentence.endswith(f"{begin}it is on node n7 and has not started there yet.")
    assert told(stage, "plain").sentence.endswith(f"{begin}kube-scheduler has said nothing of it yet.")
    assert told(stage, "volcanic").sentence.endswith(f"{begin}volcano has said nothing of it yet.")
    assert told(stage, "over").sentence.startswith(
        f"Pod team-a/over has ended at {text(NOON - 1000)} (Succeeded); it is"
    )
    assert told(stage, "other").sentence.endswith("; no budget counts it.")


def test_two_budgets_count_a_pod_that_runs() -> None:
    stage = Stage(a_budget(), a_budget("two"), pods=[running("train", HOUR)])
    assert told(stage, "train").sentence.endswith("; it is counted by budgets team-a/one and team-a/two.")


def test_what_was_let_go_says_when() -> None:
    stage = Stage(a_budget(enforce="Hold"), pods=[gated("late")])
    stage.look()
    assert f"let go at {text(NOON)}" in told(stage, "late").details


def test_nothing_is_known_of_what_is_not_there() -> None:
    stage = full()
    stage.look()
    stage.look()
    statuses = {ref: each.status for ref, each in stage.budgets.items()}
    assert explained(stage.world(), statuses, Ref("Pod", "team-a", "none")) is None
    assert explained(stage.world(), statuses, Ref("Job", "team-a", "train-1")) is None
    assert {"team-a/train-0", "team-a/train-9"} <= names(stage.world(), statuses, "Pod")
    assert names(stage.world(), statuses, "Job") == set()


def test_hostile_words_in_a_status_do_no_harm() -> None:
    stage = full("Hold", others=[gated("late", annotations=((marks.HELD_BY, "nonsense"),))])
    stage.look()
    budget = stage.budgets[a_ref()]
    status = structs.replace(budget.status, consumed_gpu_hours="NaN")
    stage.budgets[a_ref()] = structs.replace(budget, status=status)
    assert "0.000 of 239.5 GPU-hours" in told(stage, "late").sentence


def test_lengths_are_spoken() -> None:
    assert [spoken(each * 1000) for each in (0, 59, 60, 3600, 5400, 3661)] == [
        "0s",
        "59s",
        "1m",
        "1h",
        "1h30m",
        "1h1m1s",
    ]


def test_of_a_pending_pod_it_is_said_that_no_budget_counts_it() -> None:
    stage = Stage(a_budget(), pods=[a_pod("stray"), a_pod("counted", labels=TEAM), running("other", HOUR, labels=())])
    assert "no budget counts it" in told(stage, "stray").details
    assert "no budget counts it" not in told(stage, "counted").details
    assert told(stage, "other").sentence.endswith("; no budget counts it.")
    assert "no budget counts it" not in told(stage, "other").details, "the sentence says so"


def test_what_is_never_stopped_says_by_whose_word() -> None:
    def details(**fields: Any) -> tuple[str, ...]:
        pod = running("kept", HOUR, **fields)
        found = explained(Stage(a_budget(), pods=[pod]).world(), {}, Ref("Pod", pod.namespace, "kept"))
        assert found is not None
        return found.details

    begin = "protected: Headroom never stops it, as "
    assert f"{begin}its annotation headroom.dev/protected asks" in details(annotations=((marks.PROTECTED, "true"),))
    agent = details(owner=of_job("agent", "DaemonSet"), gpus=0)
    assert f"{begin}all pods of a DaemonSet that have no devices" in agent
    assert f"{begin}all of namespace kube-system" in details(namespace="kube-system")
    assert f"{begin}all of namespace headroom-system" in details(namespace="headroom-system")
    assert not [each for each in details(annotations=((marks.PROTECTED, "false"),)) if each.startswith("protected")]


def test_a_length_that_cannot_be_read_is_named() -> None:
    word = ((marks.HELD_BY, "team-a/one"), (marks.EXPECTED_DURATION, "two hours"))
    stage = full("Hold", others=[gated("late", annotations=word)])
    stage.look()
    details = told(stage, "late").details
    assert any("for 1 GPU for 1h (by releaseHorizon, as it declares no length)" in each for each in details)
    assert (
        "its headroom.dev/expected-duration, 'two hours', cannot be read, so it counts as none; write a length of time such as "
        "90s, 30m or 1h30m"
    ) in details
