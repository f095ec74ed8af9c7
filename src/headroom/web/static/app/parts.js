// Pieces that several pages share: cards, badges, bars, links, and the list of decisions.

import { announce, attribute, fill, h, keyed, prose, show, text, time } from "./dom.js";
import * as format from "./format.js";
import { PAGES } from "./pages.js";

/** What a budget's state means, in a word and in a sentence. */
export const STATES = {
  Ok: ["Within quota", "There is quota left."],
  Alerting: ["Alert", "An alert threshold is reached; nothing is held or stopped."],
  Holding: ["Holding", "New pods of this budget wait until the window frees hours for them."],
  Pausing: ["Pausing", "Pods that run are marked as paused, for programs that heed it; nothing is stopped."],
  Stopping: ["Stopping", "Pods or jobs are being stopped, the fewest that bring the budget back in time."],
  Exceeded: ["Used up", "The quota is used up."],
  Paused: ["Switched off", "It counts, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "Something in this budget is wrong, so it is not enforced."],
  Waiting: ["Not counted yet", "It was made a moment ago; its first count is on the way."],
};

/** What a power pool's state means. */
export const POOLS = {
  Steady: ["Steady", "Nothing has to change: the machines that are on suffice, and none is idle for long."],
  Changing: ["Changing", "Machines boot, or go to sleep."],
  Unserved: ["Pods wait", "Pods wait for which this pool wakes no machine; its page says why."],
  Braked: ["Held back", "Nothing is sent to sleep for now: too much looks idle at once, or not everything can be seen."],
  Conflict: ["Conflict", "A machine is named by another pool too."],
  MachinesFailed: ["Machines failed", "Machines did not do what they were told."],
  Paused: ["Switched off", "It is looked at, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "Something in this pool is wrong, so nothing is done for it."],
  Waiting: ["Not looked at yet", "It was made a moment ago."],
};

/** What a machine is doing, with its tone and a sentence; in the order in which people think of them. */
export const MACHINES = {
  On: ["On", "good", "Its node is ready."],
  Booting: ["Booting", "busy", "It was told to wake, and its node is not ready yet."],
  Draining: ["Draining", "busy", "Its node takes no new pods; it will be sent to sleep unless a pod comes."],
  Sleeping: ["Going to sleep", "busy", "It was told to sleep, and is not off yet."],
  Off: ["Off", "idle", "It can be woken."],
  Failed: ["Failed", "bad", "It did not do what it was told."],
  Unknown: ["Not known", "warn", "Nobody can say what it is doing."],
};

export function stateWord(state) {
  return STATES[state]?.[0] ?? state;
}

/** A card with a heading; `aside` stands at its right. */
export function card(title, { id, note, aside, level = "h2" } = {}, ...children) {
  const heading = h(level, { id: `${id}-title`, text: title });
  const head = h("div", { class: "card-head" }, h("div", {}, heading, note ? h("p", { class: "quiet", text: note }) : null), aside);
  return h("section", { class: "card", id, "aria-labelledby": `${id}-title` }, head, ...children);
}

export function badge() {
  return h("span", { class: "badge" });
}

export function setBadge(node, words, tone, title) {
  text(node, words);
  attribute(node, "data-tone", tone);
  attribute(node, "title", title);
}

/** A bar for a share of something; the words beside it say the same, so it is hidden from screen readers. */
export function bar() {
  return h("div", { class: "bar", "aria-hidden": "true" }, h("div", { class: "bar-part" }));
}

export function setBar(node, percent, tone) {
  const width = `${Math.min(Math.max(percent ?? 0, 0), 100)}%`;
  if (node.firstChild.style.width !== width) node.firstChild.style.width = width;
  attribute(node, "data-tone", tone);
}

/** One large number of a `dl`, with a note below and a bar where it is a share. */
export function tile(name, value, note, percent, tone) {
  const strip = percent === undefined ? null : bar();
  if (strip) setBar(strip, percent, tone);
  const notes = h("span", { class: "quiet" }, note);
  return h("div", { class: "tile" }, h("dt", { text: name }), h("dd", {}, h("strong", { text: value }), notes, strip));
}

const identified = new WeakMap();

/** The rows of a map, each with its key as id; the same object for the same row, so that a table sees what did not change. */
export function withIds(rows) {
  return Object.entries(rows ?? {}).map(([id, row]) => {
    if (!identified.has(row)) identified.set(row, { id, ...row });
    return identified.get(row);
  });
}

/** Where one resource is shown; nothing for a kind without such a page. */
export function address(resource) {
  const page = PAGES.find((each) => each.kind && each.kind === resource.kind);
  return page && `#/${page.path.replace(/{(\w+)}/g, (_, field) => encodeURIComponent(resource[field]))}`;
}

export const budgetAddress = (namespace, name) => address({ kind: "GPUWorkloadBudget", namespace, name });
export const poolAddress = (name) => address({ kind: "PowerPool", name });

/** "3 on, 1 booting, 4 off". */
export function statesWords(states) {
  const found = Object.keys(MACHINES).filter((state) => states?.[state]);
  return found.map((state) => `${format.number(states[state])} ${MACHINES[state][0].toLowerCase()}`).join(", ");
}

/** Machines by state as one bar; the words beside it say the same. */
export const states = {
  bar: () => h("div", { class: "states-bar", "aria-hidden": "true" }),
  add(total, more) {
    for (const [state, count] of Object.entries(more ?? {})) total[state] = (total[state] ?? 0) + count;
    return total;
  },
  set(node, counts) {
    const parts = Object.keys(MACHINES).filter((state) => counts?.[state]);
    fill(node, parts.map((state) => {
      const part = h("span", { class: `past-${state}` });
      part.style.flexGrow = counts[state];
      return part;
    }));
  },
};

/** What comes next for a budget: a few words and, where there is one, the moment. */
export function next(budget) {
  if (budget.state === "Invalid" || budget.state === "Waiting") return [stateWord(budget.state), null];
  const waits = budget.heldPods ? format.count(budget.heldPods, "pod waits", "pods wait") : "";
  if (ACTS[budget.state]) return acting(budget, waits);
  const [words, when] = pace(budget);
  return [waits ? `${waits}; ${words}` : words, when];
}

/** What a budget that acts does meanwhile; when the quota is used up says nothing about it. */
const ACTS = { Holding: "new pods wait", Pausing: "pods stay paused", Stopping: "pods are being stopped" };

function acting(budget, waits) {
  const doing = [budget.state === "Holding" ? "" : ACTS[budget.state], waits].filter(Boolean).join("; ") || ACTS[budget.state];
  if (waits && budget.nextStartsAt) return [`${doing}; the next starts`, budget.nextStartsAt];
  if (budget.recoversAt) return [`${doing}; below its quota again`, budget.recoversAt];
  if (waits) return [`${doing}; when the next starts is not known yet`, null];
  return [budget.percent >= 100 ? `${doing} while what runs goes on` : `${doing} until less is used`, null];
}

function pace(budget) {
  if (budget.recoversAt) return ["below its quota again", budget.recoversAt];
  if (budget.exhaustedAt) return ["used up", budget.exhaustedAt];
  if (budget.percent >= 100) return ["stays used up while what runs goes on", null];
  return [Number(budget.burnRateGpus) > 0 ? "lasts at this pace" : "nothing runs", null];
}

export function setNext(node, budget) {
  const [words, when] = next(budget);
  fill(node, words, when ? " " : null, when ? time(when, "ahead") : null);
}

/** "QuotaExceeded" for machines is "Quota exceeded" for people. */
export function reasonWords(reason) {
  const words = reason.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2");
  return words.charAt(0) + words.slice(1).replace(/\b[A-Z][a-z]/g, (start) => start.toLowerCase());
}

export function resourceLink(entry) {
  const label = entry.namespace ? `${entry.namespace}/${entry.name}` : entry.name;
  const words = entry.kind === "GPUWorkloadBudget" ? label : `${entry.kind} ${label}`;
  const href = address(entry);
  return href ? h("a", { href, text: words }) : h("span", { text: words });
}

const ANNOUNCE_MS = 10_000;

/** Says to screen readers when a row changes its state, seldom enough to be listened to. */
export class Teller {
  constructor(word) {
    this._word = word;
    this._states = null;
    this._last = 0;
  }

  hear(rows) {
    const states = new Map(rows.map((row) => [row.id, row.state]));
    const turned = this._states ? rows.filter((row) => this._states.has(row.id) && this._states.get(row.id) !== row.state) : [];
    if (this._states && turned.length && performance.now() - this._last < ANNOUNCE_MS) return; // told with the next one
    this._states = states;
    if (!turned.length) return;
    this._last = performance.now();
    announce(turned.slice(0, 3).map((row) => `${row.id}: ${this._word(row)}.`).join(" "));
  }
}

/** Decisions, newest first. */
export class Entries {
  constructor({ empty, named = true }) {
    this._named = named;
    this._list = h("ol", { class: "entries" });
    this._empty = h("p", { class: "empty" }, empty);
    this._count = h("p", { class: "quiet", role: "status", hidden: true });
    this.node = h("div", {}, this._count, this._list, this._empty);
  }

  /** Shows the newest `most` of them, and says so where there are more: `all`, or as many as were given. */
  draw(entries, most = Infinity, all = Object.keys(entries ?? {}).length) {
    const ids = Object.keys(entries ?? {}).sort((a, b) => (a.length - b.length || (a < b ? -1 : 1)) * -1);
    const rows = ids.slice(0, most).map((id) => entries[id]);
    const names = new Map(rows.map((row, number) => [row, ids[number]]));
    keyed(this._list, rows, (row) => names.get(row), () => this._make(), (node, row) => this._update(node, row));
    text(this._count, `The newest ${format.number(rows.length)} of ${format.number(all)}.`);
    show(this._count, rows.length > 0 && all > rows.length);
    show(this._list, rows.length > 0);
    show(this._empty, rows.length === 0);
    return rows.length;
  }

  _make() {
    return h("li", { class: "entry" }, h("p", { class: "entry-head" }), h("p", { class: "entry-text" }));
  }

  _update(node, entry) {
    const [head, sentence] = node.children;
    const reason = h("span", { class: "reason", title: entry.reason, text: reasonWords(entry.reason) });
    fill(head, time(entry.at), " ", this._named ? [resourceLink(entry), " "] : null, reason);
    prose(sentence, entry.message);
    const open = node.querySelector("details")?.open;
    node.querySelector("details")?.remove();
    if (!entry.actions?.length) return;
    const more = (entry.count ?? entry.actions.length) - entry.actions.length;
    const items = entry.actions.map((action) => h("li", {}, h("code", { text: action })));
    if (more > 0) items.push(h("li", { class: "quiet", text: `and ${more} more` }));
    const total = entry.count ?? entry.actions.length;
    node.append(h("details", { open }, h("summary", { text: format.count(total, "action") }), h("ul", {}, items)));
  }
}
