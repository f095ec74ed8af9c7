// One budget: how full its window is, what comes next, who uses it, what is queued, and what was done about it.

import { Chart } from "../chart.js";
import { announce, fill, h, prose, show, text, time } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { badge, card, folded, namespaceLink, outward, reasonWords, setBadge, setNext, STATES, stateWord, tile, unitLink } from "../parts.js";
import { PlainTable } from "../table.js";
import { whoCard } from "../who.js";

export const path = ({ namespace, name }) => `budgets/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
export const title = ({ namespace, name }) => `${namespace}/${name}`;
export const gone = ({ namespace, name }) => `The budget ${namespace}/${name} was deleted, or you may no longer see it. The page shows its last state.`;

const ACTIONS = {
  AlertOnly: "Alert only",
  Pause: "Mark pods as paused, for programs that honor the mark",
  Hold: "Queue new pods",
  Suspend: "Suspend the fewest jobs that suffice",
  Evict: "Stop the fewest pods that suffice",
};
const MOST_HISTORY = 25;
const ANSWERS = { True: "yes", False: "no" };
const STARTS = { NeverFits: "never: it exceeds the quota on its own", Releasing: "now" };
const OUTCOMES = { Stopped: "was stopped", Blocked: "could not be stopped", Unknown: "gone, cause unknown" };
const MARKS = { now: "now", exhausted: "over quota", recovers: "back under quota" };

export function mount(main, route) {
  const { namespace, name } = route;
  const state = badge();
  const heading = h("h1", { tabindex: "-1", text: `${namespace}/${name}` });
  const lead = h("p", { class: "lead" });
  const still = h("p", { class: "quiet", id: "still", hidden: true });
  const verdict = h("p", { class: "quiet", id: "verdict", hidden: true });
  const tools = h("p", { class: "outwards" });
  const problems = h("ul", { class: "notice bad", hidden: true });
  const tiles = h("dl", { class: "tiles" });
  const hours = new CurveCard("GPU-hours used in the window", "curve", "The sum over the rolling window at each moment: hours leave it as they grow older than the window.");
  const money = new CurveCard("Dollars spent in the window", "usd-curve", "The same sum in dollars, at the price of each hour.");
  const steps = h("ol", { class: "ladder" });
  const ladder = card("Enforcement steps", { id: "ladder", note: "Active steps are marked. A step clears only some points below where it becomes active, so that it does not come and go." }, steps);
  const who = whoCard();
  const held = tableCard("Queue", "waiting", "The first in line starts first.", ["Queued", { title: "GPUs", figure: true }, "Since", "Estimated start"], "No pod is queued by this budget.");
  const released = tableCard("Released", "released", "What was queued and then released: its pods start again without being queued, up to these GPUs.", ["Owner", { title: "GPUs", figure: true }, { title: "In use", figure: true }, "Released", "Until"], "");
  const refused = tableCard("Evictions refused", "refused", "PodDisruptionBudgets that keep pods of this budget from being evicted.", ["What", "By", "Since", "Then"], "");
  const stopped = tableCard("Stopped", "stopped", "What this budget stopped, newest first.", ["What", "How", "When", "Outcome"], "");
  const history = new Entries({ empty: "Nothing was decided about this budget in the last 7 days.", named: false });
  const log = h("a", { href: `#/decisions?${new URLSearchParams({ q: `${namespace}/${name}`, since: "168h" })}`, text: "All of them" });
  const facts = h("dl", { class: "facts" });
  main.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/", text: "Overview" }), " / ", namespaceLink(namespace), " / budgets"),
    h("div", { class: "title-row" }, heading, state),
    lead,
    still,
    verdict,
    problems,
    tools,
    tiles,
    h("div", { class: "pair even" }, hours.node, money.node),
    h("div", { class: "pair" }, h("div", { class: "stack" }, ladder, held.node, refused.node, stopped.node, released.node), h("div", { class: "stack" }, who.node)),
    folded("History", { id: "history", note: "What was decided about this budget, newest first, and why.", aside: log }, history.node),
    folded("Settings and conditions", { id: "facts" }, facts),
  );
  let before;

  return {
    update(model) {
      const budget = model.budget;
      setBadge(state, stateWord(budget.state), budget.tone, STATES[budget.state]?.[1]);
      if (before && before !== budget.state) announce(`${namespace}/${name}: ${stateWord(budget.state)}.`);
      before = budget.state;
      prose(lead, budget.message);
      text(still, whyStill(budget));
      show(still, still.textContent);
      fill(problems, (budget.problems ?? []).map((problem) => h("li", { text: problem })));
      show(problems, budget.problems?.length);
      fill(tiles, tilesOf(model));
      hours.draw(model.curve, budget);
      money.draw(model.usdCurve, budget);
      fill(steps, (budget.ladder ?? []).map(step));
      show(ladder, budget.ladder?.length);
      who.draw(model.who);
      fill(tools, outward(model.tools));
      show(tools, model.tools?.length);
      held.draw((model.held ?? []).map(heldRow), more(model));
      released.draw((model.released ?? []).map((each) => [unitLink(each.owner), figure(each.gpus), figure(each.usedGpus ?? "0"), time(each.at), time(each.until, "ahead")]));
      refused.draw((model.refused ?? []).map(refusedRow));
      fill(verdict, followed(model.following));
      show(verdict, model.following);
      stopped.draw(stoppedRows(model));
      history.draw(model.history, MOST_HISTORY);
      fill(facts, factsOf(budget, budget.message));
    },
    close() {
      hours.close();
      money.close();
    },
  };
}

// --- numbers -----------------------------------------------------------------------------------------------------------

function figure(value) {
  return h("span", { title: value, text: format.number(value) });
}

function tilesOf(model) {
  const budget = model.budget;
  const window = budget.windowHours ? format.window(budget.windowHours) : "window";
  const found = [];
  const used = budget.quotaGpuHours ? (100 * Number(budget.consumedGpuHours)) / Number(budget.quotaGpuHours) : undefined;
  const [hours, ofHours] = usedOf(budget.consumedGpuHours ?? "0", budget.quotaGpuHours, "GPU-hours");
  found.push(tile(`Used in the last ${window}`, hours, `${ofHours} GPU-hours`.trim(), used, budget.tone));
  if (budget.consumedUsd) {
    const share = budget.quotaUsd ? (100 * Number(budget.consumedUsd)) / Number(budget.quotaUsd) : undefined;
    const [spent, ofMoney] = usedOf(budget.consumedUsd, budget.quotaUsd, "dollars");
    found.push(tile("Spent", spent, ofMoney || "no limit in dollars", share, budget.tone));
  }
  const next = h("span");
  setNext(next, budget);
  if (budget.remainingGpuHours) found.push(tile("Left", format.left(budget.remainingGpuHours), ["GPU-hours; ", next]));
  else found.push(tile("Left", format.percent(Math.max(0, 100 - (budget.percent ?? 0))), ["of the quota; ", next]));
  found.push(tile("GPUs now", format.number(budget.burnRateGpus ?? "0"), `burn rate of ${format.count(budget.trackedPods ?? 0, "pod")}`));
  if (model.heldPods) found.push(tile("Pods queued", format.number(model.heldPods), model.heldUnits === model.heldPods ? "each on its own" : `as ${format.count(model.heldUnits, "pod or gang", "pods or gangs")}`));
  return found;
}

/** What was used, and "of" its quota where there is one. */
function usedOf(used, quota, unit) {
  if (quota === undefined || quota === "") return [format.amount(used, unit), ""];
  const [words, limit] = format.usedOf(used, quota, unit);
  return [words, `of ${limit}`];
}

/** Why a step is still active though usage is below where it begins; empty if none is. */
function whyStill({ ladder, percent, tone }) {
  if (tone !== "bad" && tone !== "warn") return "";
  const standing = (ladder ?? []).filter((each) => each.since && each.endsBelow && percent < parseFloat(each.at) && percent >= parseFloat(each.endsBelow));
  const last = standing.at(-1);
  if (!last) return "";
  const doing = ACTIONS[last.action]?.split(",")[0] ?? last.action;
  return `${format.percent(percent)} is used. "${doing}" became active at ${last.at} and clears below ${last.endsBelow}.`;
}

/** The window as a curve: what was used, what is to be expected, and the quota. */
class CurveCard {
  constructor(name, id, note) {
    this._chart = new Chart(name);
    this.node = card(name, { id, note }, this._chart.node);
  }

  close() {
    this._chart.close();
  }

  draw(curve) {
    show(this.node, curve);
    if (!curve) return;
    const ahead = curve.ahead ?? { t: [], used: [] };
    // Where the forecast begins at the last moment that is known, that moment is drawn once.
    const skip = ahead.t.length && ahead.t[0] === curve.t.at(-1) ? 1 : 0;
    const t = [...curve.t, ...ahead.t.slice(skip)];
    const past = [...curve.used, ...ahead.t.slice(skip).map(() => null)];
    const joined = (used) => [...curve.t.map((_moment, index) => (index === curve.t.length - 1 ? curve.used[index] : null)), ...used.slice(skip)];
    const lines = [{ label: "used", values: past, look: "used" }];
    const declared = curve.aheadEndless !== undefined;
    if (ahead.t.length) lines.push({ label: declared ? "forecast with declared durations" : "forecast while the current pods run", values: joined(ahead.used), look: "ahead" });
    if (declared) lines.push({ label: "if no running pod ended", values: joined(curve.aheadEndless.used), look: "endless" });
    if (curve.quota !== undefined) lines.push({ label: "quota", values: t.map(() => curve.quota), look: "limit" });
    const about = (mark) => mark.kind === "now" || curve.quota !== undefined; // without a quota there is nothing to reach
    const named = (curve.marks ?? []).map((mark) => ({ ...mark, label: MARKS[mark.kind] ?? mark.kind }));
    const marks = named.filter(about);
    const texts = marks.filter((mark) => mark.kind !== "now").map((mark) => `${MARKS[mark.kind] ?? mark.kind} ${format.moment(mark.t * 1000)}`);
    const now = usedOf(curve.used.at(-1) ?? 0, curve.quota, curve.unit).join(" ").trim();
    const summary = `Now ${now}${curve.unit === "dollars" ? "" : ` ${curve.unit}`}${texts.length ? `; ${texts.join("; ")}` : ""}.`;
    this._chart.draw({ t, lines, marks, room: named, unit: curve.unit, summary }); // the axes of both charts end alike
  }
}

// --- lists -------------------------------------------------------------------------------------------------------------

function step({ at, action, since, endsBelow }) {
  const ends = since && endsBelow ? h("span", { class: "quiet", text: `clears below ${endsBelow}` }) : null;
  const entered = since ? [h("span", { class: "badge", "data-tone": "warn" }, "active since ", time(since)), " ", ends] : h("span", { class: "quiet", text: "not active" });
  const words = h("span", {}, h("b", { text: ACTIONS[action] ?? action }), h("span", { class: "quiet", text: ACTIONS[action] ? ` (${action})` : "" }));
  return h("li", { class: since ? "entered" : undefined }, h("strong", { text: at }), words, h("span", { class: "reached" }, entered));
}

function heldRow(unit) {
  const pods = h("span", {}, unitLink(unit.unit, unit.pod), unit.pods > 1 ? ` (${unit.pods} pods)` : "");
  const starts = unit.startsAt ? time(unit.startsAt, "ahead") : STARTS[unit.state] ?? "not known yet";
  return [pods, figure(unit.gpus), unit.since ? time(unit.since) : "", starts];
}

function more(model) {
  const hidden = (model.heldUnits ?? 0) - (model.held?.length ?? 0);
  return hidden > 0 ? `and ${hidden} more` : "";
}

function refusedRow(each) {
  const then = each.deletedAt ? [h("span", { text: "deleted " }), time(each.deletedAt, "ahead")] : "others are tried";
  return [unitLink(each.unit), (each.by ?? []).join(", ") || "not known", time(each.since), then];
}

/** Whose verdict a budget follows that spans clusters, as a sentence. */
function followed(following) {
  if (!following) return [];
  const holds = following.holding ? [" queues new pods (since ", time(following.since), ")."] : [" does not queue new pods."];
  const late = following.stale ? " It has not been heard of for two minutes, so what is queued stays queued." : "";
  return [h("span", {}, `Cluster ${following.cluster} decides on this budget: it`, ...holds, late)];
}

function stoppedRows(model) {
  const chosen = model.victim ? [{ ...model.victim, outcome: "chosen, still running" }] : [];
  return [...chosen, ...(model.stopped ?? [])].map((each) => [unitLink(each.unit), each.action, each.at ? time(each.at) : "", OUTCOMES[each.outcome] ?? each.outcome ?? ""]);
}

/** A card with a small table; with no sentence for its being empty, it is not shown then. */
function tableCard(name, id, note, heads, empty) {
  const table = new PlainTable(name, heads);
  const wide = h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": name }, table.node);
  const nothing = h("p", { class: "empty", text: empty });
  const rest = h("p", { class: "quiet" });
  const node = card(name, { id, note }, wide, nothing, rest);
  return {
    node,
    draw(rows, left = "") {
      fill(table.body, rows.map((cells) => table.row(cells)));
      show(wide, rows.length);
      show(nothing, !rows.length);
      show(node, rows.length || empty);
      text(rest, left);
      show(rest, left);
    },
  };
}

function factsOf(budget, said) {
  const facts = [];
  const fact = (name, value) => value !== undefined && value !== "" && facts.push(h("div", {}, h("dt", { text: name }), h("dd", {}, value)));
  fact("Counts pods with", budget.selector || "any label");
  fact("Window", budget.windowHours ? `${format.window(budget.windowHours)}, rolling` : undefined);
  fact("Accounting", budget.accounting);
  fact("Grace period", budget.gracePeriodSeconds === undefined ? undefined : format.span(budget.gracePeriodSeconds * 1000));
  fact("Upper bound, if uncertain usage counts", budget.upperGpuHours && budget.upperGpuHours !== budget.consumedGpuHours ? `${format.number(budget.upperGpuHours)} GPU-hours` : undefined);
  fact("Hours without a price", budget.unpricedGpuHours && Number(budget.unpricedGpuHours) ? `${format.number(budget.unpricedGpuHours)} GPU-hours` : undefined);
  fact("Last acted", budget.lastEnforcementAt ? time(budget.lastEnforcementAt) : undefined);
  // "No pods request the resource: no" says nothing to anybody: of what does not hold only readiness is news.
  for (const each of (budget.conditions ?? []).filter(({ type, status }) => status !== "False" || type === "Ready")) {
    const sentence = h("span");
    prose(sentence, each.message && !said?.includes(each.message) ? `: ${each.message}` : ""); // not what the page begins with
    fact(reasonWords(each.type), h("span", { title: each.reason }, h("b", { text: ANSWERS[each.status] ?? "not known" }), sentence));
  }
  return facts;
}
