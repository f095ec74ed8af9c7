// Pieces that several pages share: cards, badges, bars, links, and the list of decisions.

import { announce, attribute, fill, h, text, time } from "./dom.js";
import * as format from "./format.js";
import { PAGES } from "./pages.js";

/** What a budget's state means, in a word and in a sentence. */
export const STATES = {
  Ok: ["Within quota", "There is quota left."],
  Alerting: ["Alert", "An alert step is active; no pod is queued or stopped."],
  Holding: ["Queueing", "New pods of this budget are queued until the window frees hours for them."],
  Pausing: ["Pausing", "Running pods are marked as paused, for programs that honor the mark; nothing is stopped."],
  Stopping: ["Stopping", "The fewest pods or jobs that bring usage back under quota are being stopped."],
  Exceeded: ["Over quota", "Usage is at or above the quota, and no enforcement step acts on it yet."],
  Paused: ["Switched off", "It counts, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "The budget is invalid, so it is not enforced."],
  Waiting: ["Not counted yet", "It was just created; its first count will follow."],
};

/** What a power pool's state means. */
export const POOLS = {
  Steady: ["Steady", "No change is needed: enough machines are on, and none has been idle for long."],
  Changing: ["Changing", "Machines boot, or go to sleep."],
  Unserved: ["Pods unserved", "This pool wakes no machine for some pending pods; its page says why."],
  Braked: ["Held back", "No machine goes to sleep for now: too many look idle at once, or the view is incomplete."],
  Conflict: ["Conflict", "A machine is named by another pool too."],
  MachinesFailed: ["Machines failed", "Machines did not carry out their commands."],
  Paused: ["Switched off", "It is observed, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "The pool is invalid, so Headroom does not act for it."],
  Waiting: ["Not checked yet", "It was just created."],
};

/** What a machine is doing, with its tone and a sentence; in the order in which people think of them. */
export const MACHINES = {
  On: ["On", "good", "Its node is ready."],
  Booting: ["Booting", "busy", "It was woken, and its node is not ready yet."],
  Draining: ["Draining", "busy", "Its node takes no new pods; it will be sent to sleep unless a pod comes."],
  Sleeping: ["Going to sleep", "busy", "It was sent to sleep, and is not off yet."],
  Off: ["Asleep", "idle", "It can be woken."],
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

/** The same, folded on a phone until somebody opens it. */
export function folded(title, { id, note, aside } = {}, ...children) {
  const inner = h("details", { open: !window.matchMedia("(max-width: 48rem)").matches }, h("summary", { text: `Show ${title.toLowerCase()}` }), ...children);
  const node = card(title, { id, note, aside }, inner);
  node.classList.add("folded");
  return node;
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
  return h("div", { class: "tile" }, h("dt", { text: name }), h("dd", {}, h("strong", {}, value), notes, strip));
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
  const queued = budget.heldPods ? format.count(budget.heldPods, "pod queued", "pods queued") : "";
  if (ACTS[budget.state]) return acting(budget, queued);
  const [words, when] = ahead(budget);
  return [queued ? `${queued}; ${words}` : words, when];
}

/** What a budget that acts does meanwhile; when it is over quota says nothing about it. */
const ACTS = { Holding: "new pods are queued", Pausing: "pods stay paused", Stopping: "pods are being stopped" };

function acting(budget, queued) {
  const doing = [budget.state === "Holding" ? "" : ACTS[budget.state], queued].filter(Boolean).join("; ") || ACTS[budget.state];
  if (queued && budget.nextStartsAt) return [`${doing}; estimated start of the first`, budget.nextStartsAt];
  if (budget.recoversAt) return [`${doing}; back under quota`, budget.recoversAt];
  if (queued) return [`${doing}; estimated start not known yet`, null];
  return [budget.percent >= 100 ? `${doing} while the current pods run` : `${doing} until usage falls`, null];
}

function ahead(budget) {
  if (budget.recoversAt) return ["back under quota", budget.recoversAt];
  if (budget.exhaustedAt) return ["over quota", budget.exhaustedAt];
  if (budget.percent >= 100) return ["stays over quota while the current pods run", null];
  return [Number(budget.burnRateGpus) > 0 ? "stays within quota" : "nothing runs", null];
}

export function setNext(node, budget) {
  const [words, when] = next(budget);
  const other = ACTS[budget.state] || budget.percent >= 100 ? "" : budget.exhaustedAtIfNothingEnds;
  const without = other ? h("span", { class: "quiet without" }, "If nothing ended: over quota ", time(other, "ahead")) : null;
  fill(node, words, when ? " " : null, when ? time(when, "ahead") : null, without);
}

/** "QuotaExceeded" for machines is "Quota exceeded" for people. */
export function reasonWords(reason) {
  const words = reason.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2");
  return words.charAt(0) + words.slice(1).replace(/\b[A-Z][a-z]/g, (start) => start.toLowerCase()).replace(/\bkarpenter\b/g, "Karpenter");
}

export function resourceLink(entry) {
  const label = entry.namespace ? `${entry.namespace}/${entry.name}` : entry.name;
  const words = entry.kind === "GPUWorkloadBudget" ? label : `${entry.kind} ${label}`;
  const href = address(entry);
  return href ? h("a", { href, text: words }) : h("span", { text: words });
}

export const namespaceLink = (name) => h("a", { href: address({ kind: "Namespace", name }), text: name });

/** A pod by "namespace/name", wherever it is named: its page says why it is as it is. */
export function podLink(key, label = key) {
  const [namespace, name] = String(key).split("/");
  return name ? h("a", { href: address({ kind: "Pod", namespace, name }), text: label }) : h("span", { text: key });
}

/** A gang, Kind/namespace/name: it leads to the page of one of its pods, where that is known, else to its namespace. */
export function unitLink(unit, pod) {
  const [kind, namespace, ...rest] = String(unit).split("/");
  const name = rest.join("/");
  if (!name) return h("span", { text: unit });
  if (pod) return podLink(pod, kind === "Pod" ? pod : `${kind} ${namespace}/${name}`);
  if (kind === "Pod") return podLink(`${namespace}/${name}`);
  return h("span", {}, `${kind} `, h("a", { href: address({ kind: "Namespace", name: namespace }), text: namespace }), `/${name}`);
}

/** The links that an administrator has set, to other tools. What is no web address is not shown, whoever said it. */
export function outward(links) {
  const safe = (links ?? []).filter(({ href }) => /^https?:\/\/[^/]/i.test(href));
  return safe.map(({ name, href }) => h("a", { class: "outward", href, target: "_blank", rel: "noopener noreferrer", text: name }));
}

const ANNOUNCE_MS = 10_000;

/** Says to screen readers when a row changes its state, seldom enough to be listened to. */
export class Teller {
  constructor(word) {
    this._word = word;
    this._states = null;
    this._last = -ANNOUNCE_MS; // The first news is told at once, however young the page is.
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
