// The first page: how the fleet stands, which budgets need a look, and what was decided just now.

import { Chart } from "../chart.js";
import { attribute, fill, h, show, text, time } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { Table } from "../table.js";
import { modelsCard, others } from "../models.js";
import { badge, bar, budgetAddress, card, next, setBadge, setBar, setNext, STATES, stateWord, Teller, tile, withIds } from "../parts.js";

const ORDER = { bad: 0, warn: 1, good: 2, idle: 3 };
const FAR = Date.parse("9999-01-01T00:00:00Z");
const MOST_DECISIONS = 4;

export const path = () => "overview";
export const title = () => "Overview";

export function mount(main, route) {
  const lead = h("p", { class: "lead" });
  const tiles = h("dl", { class: "tiles" });
  const chart = new Chart("GPUs allocated over the last 24 hours");
  const held = card("GPUs allocated", { id: "held", note: "The last 24 hours, against what the fleet has." }, chart.node);
  const models = modelsCard();
  const table = budgetTable(route);
  const budgets = card("Budgets", { id: "budgets", note: "Budgets with problems first, then by time left." }, table.node);
  const entries = new Entries({ empty: "No decisions in the last hour." });
  const all = h("a", { href: "#/decisions", text: "All decisions" });
  const decisions = card("Decided in the last hour", { id: "decided", aside: all }, entries.node);
  const first = firstSteps();
  main.append(h("h1", { tabindex: "-1", text: "Overview" }), lead, first, tiles, budgets, models.node, h("div", { class: "pair" }, held, decisions));
  const told = new Teller((row) => stateWord(row.state));
  let drawn; // What did not change stays the same object.

  return {
    update(model) {
      const rows = withIds(model.budgets);
      fill(lead, headline(model, rows));
      fill(tiles, tilesOf(model, rows));
      show(held, model.gpus);
      if (model.gpus && model.gpus !== drawn) chart.draw(drawing((drawn = model.gpus)));
      table.rows(rows);
      models.draw(model.models, pendingOf(model.fleet) ? model.needs : []); // needs come later than counts
      show(first, rows.length === 0);
      show(budgets, rows.length > 0);
      entries.draw(model.decisions, MOST_DECISIONS, model.decidedInHour);
      told.hear(rows);
    },
    close: () => chart.close(),
  };
}

// --- in words ----------------------------------------------------------------------------------------------------------

function headline(model, rows) {
  const said = [];
  if (model.fleet) {
    said.push(`${format.number(model.fleet.held)} of ${format.number(model.fleet.gpus)} GPUs are allocated${waits(model.fleet)}.`);
  } else if (model.viewer?.namespaces) {
    said.push(`You see what is in ${format.listed(model.viewer.namespaces)}.`);
  }
  const bad = rows.filter((row) => row.tone === "bad").map((row) => row.id);
  const warn = rows.filter((row) => row.tone === "warn").map((row) => row.id);
  if (bad.length) said.push(`${format.count(bad.length, "budget needs", "budgets need")} a look: ${format.listed(bad)}.`);
  else if (warn.length) said.push(`${format.count(warn.length, "budget comes", "budgets come")} near the quota: ${format.listed(warn)}.`);
  else if (rows.length) said.push("All budgets are within their quotas.");
  return [said.join(" ")];
}

const pendingOf = (fleet) => (fleet ? fleet.waiting - (fleet.heldPods ?? 0) : 0);

/** Pods that a budget keeps queued are not pending: they are no reason to look for free GPUs. */
function waits({ waiting, heldPods = 0 }) {
  const pending = pendingOf({ waiting, heldPods });
  const said = [heldPods ? `${format.count(heldPods, "pod is", "pods are")} queued by budgets` : "", pending ? `${format.count(pending, "pod is", "pods are")} pending` : ""];
  const some = said.filter(Boolean);
  return some.length ? `; ${some.join(", ")}` : "";
}

/** The budget that is over quota next; those that already are need no forecast. */
function soonest(rows) {
  return rows.filter((row) => row.exhaustedAt && row.tone !== "bad").sort((a, b) => (a.exhaustedAt < b.exhaustedAt ? -1 : 1))[0];
}

function tilesOf(model, rows) {
  const queued = rows.reduce((sum, row) => sum + (row.heldPods ?? 0), 0);
  const found = [];
  if (model.fleet) {
    const { gpus, held: taken, starting = "0", free, running, waiting, heldPods = 0 } = model.fleet;
    const notYet = Number(starting) ? `, ${format.number(starting)} to starting pods` : "";
    const share = Number(gpus) ? (100 * Number(taken)) / Number(gpus) : 0;
    found.push(
      tile("GPUs allocated", format.number(taken), [`of ${format.number(gpus)}, to `, nodesLink(format.count(running, "running pod")), notYet], share, "plain"),
      tile("GPUs free", format.number(free), others(model.models) || nodesWords(model.fleet)),
      tile("Pods pending", format.number(waiting - heldPods), waiting > heldPods ? nodesLink("what they need") : "no pod lacks a node"),
      tile("Pods queued", format.number(heldPods), heldPods ? nodesLink("by budgets") : "by budgets"),
    );
  } else {
    found.push(tile("Budgets", format.number(rows.length), "that you may see"), tile("Pods queued", format.number(queued), "by these budgets"));
  }
  const first = soonest(rows);
  if (first) found.push(tile("Next over quota", time(first.exhaustedAt, "ahead"), [h("a", { href: budgetAddress(first.namespace, first.name), text: first.id })]));
  if (model.uncovered) {
    const now = Number(model.uncovered.burnRateGpus) ? `GPU-hours in 24h; ${format.count(model.uncovered.burnRateGpus, "GPU")} now` : "GPU-hours in 24h";
    found.push(tile("Not covered by a budget", format.number(model.uncovered.gpuHours), now));
  }
  return found;
}

const nodesLink = (words) => h("a", { href: "#/nodes", text: words });

/** A machine that sleeps is not ready, and nothing is wrong with it. */
function nodesWords({ nodes, nodesReady, nodesAsleep = 0 }) {
  const down = nodes - nodesReady - nodesAsleep;
  const said = [down ? `${format.count(down, "node")} of ${nodes} not ready` : "", nodesAsleep ? `${format.count(nodesAsleep, "node")} asleep` : ""];
  return said.filter(Boolean).join(", ") || `all ${nodes} nodes ready`;
}

function drawing({ t, held, capacity }) {
  const lines = [{ label: "allocated", values: held, look: "used", stepped: true }];
  if (capacity !== undefined) lines.push({ label: "in the fleet", values: t.map(() => capacity), look: "limit" });
  const last = held.at(-1) ?? 0;
  const most = held.reduce((high, value) => Math.max(high, value ?? 0), 0);
  return { t, lines, unit: "GPUs", summary: `Now ${format.number(last)}, at most ${format.number(most)} of ${format.number(capacity)}.` };
}

/** For a cluster without budgets: what to do. */
function firstSteps() {
  const sample = [
    "apiVersion: headroom.dev/v1alpha1",
    "kind: GPUWorkloadBudget",
    "metadata: {name: team-a, namespace: team-a}",
    "spec:",
    "  selector: {matchLabels: {team: a}}",
    '  quota: {gpuHours: "100", windowHours: 24}',
    "  enforcement: {action: AlertOnly}",
  ].join("\n");
  return card(
    "No budgets yet",
    { id: "first-steps", note: "A budget counts the GPU-hours that a team's pods use in a rolling window. It appears here as soon as it is applied." },
    h("p", { text: "Save this as budget.yaml, change names and labels to yours, and apply it. AlertOnly only reports; it never touches a pod." }),
    h("pre", { tabindex: "0", "aria-label": "A first budget" }, h("code", { text: sample })),
    h("pre", { tabindex: "0", "aria-label": "The command" }, h("code", { text: "kubectl apply -f budget.yaml" })),
  );
}

// --- the table ---------------------------------------------------------------------------------------------------------

function share(used, quota, unit) {
  return quota ? format.usedOf(used ?? "0", quota, unit).join(" of ") : used ? format.amount(used, unit) : "";
}

function meter(cell, percent, words, exact, tone) {
  if (!cell.firstChild) cell.append(h("span", { class: "amount" }), bar());
  text(cell.firstChild, words);
  attribute(cell.firstChild, "title", exact);
  setBar(cell.lastChild, percent, tone);
  show(cell.lastChild, percent !== undefined);
}

function part(used, quota) {
  return Number(quota) ? (100 * Number(used ?? 0)) / Number(quota) : undefined;
}

function nameCell(cell, row) {
  if (!cell.firstChild) {
    cell.append(h("a", { href: budgetAddress(row.namespace, row.name) }, `${row.namespace}/`, h("wbr"), row.name), h("small"));
  }
  text(cell.lastChild, row.windowHours ? `last ${format.window(row.windowHours)}` : "");
}

/** The worst state first; among its like, whoever has least time left, and the fullest where nobody can say. */
function urgency(row) {
  const at = row.exhaustedAt ?? row.recoversAt;
  return (ORDER[row.tone] ?? 4) * 1e16 + (at ? Date.parse(at) : FAR) - (at ? 0 : Math.min(row.percent ?? 0, 1e6));
}

function stateCell(cell, row) {
  if (!cell.firstChild) cell.append(badge());
  setBadge(cell.firstChild, stateWord(row.state), row.tone, row.message || STATES[row.state]?.[1]);
}

function nextCell(cell, row) {
  if (!cell.firstChild) cell.append(h("span"));
  setNext(cell.firstChild, row);
}

function budgetTable(route) {
  const amount = (cell, row) =>
    meter(cell, part(row.consumedGpuHours, row.quotaGpuHours), share(row.consumedGpuHours, row.quotaGpuHours, "GPU-hours"), row.consumedGpuHours, row.tone);
  const money = (cell, row) =>
    meter(cell, part(row.consumedUsd, row.quotaUsd), share(row.consumedUsd, row.quotaUsd, "dollars"), row.consumedUsd, row.tone);
  return new Table({
    caption: "budgets",
    what: "budgets",
    columns: [
      { key: "name", title: "Budget", lead: true, sort: (row) => row.id, update: nameCell },
      { key: "state", title: "State", numeric: false, sort: urgency, update: stateCell },
      { key: "used", title: "Used", numeric: true, sort: (row) => row.percent, update: (cell, row) => text(cell, format.percent(row.percent)) },
      { key: "hours", title: "GPU-hours", numeric: true, sort: (row) => Number(row.consumedGpuHours), update: amount },
      { key: "dollars", title: "Dollars", numeric: true, shown: (rows) => rows.some((row) => row.consumedUsd || row.quotaUsd), sort: (row) => (row.consumedUsd ? Number(row.consumedUsd) : undefined), update: money },
      { key: "gpus", title: "GPUs now", numeric: true, sort: (row) => Number(row.burnRateGpus ?? 0), update: (cell, row) => text(cell, format.number(row.burnRateGpus ?? "0")) },
      { key: "next", title: "What comes next", sort: (row) => next(row)[1] ?? undefined, update: nextCell },
    ],
    words: (row) => `${row.id} ${stateWord(row.state)} ${row.state} ${row.message ?? ""}`,
    sort: "state",
    empty: "There is no budget.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
}
