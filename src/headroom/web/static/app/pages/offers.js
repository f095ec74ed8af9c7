// Cheapest capacity: which offer is first in each LeftoverNodePool, what a GPU-hour there costs, and what that saves.

import { text } from "../dom.js";
import * as format from "../format.js";
import { address, tile } from "../parts.js";
import { listPage, nameColumn, needsLook, numberColumn, poolTable, stateColumn, sum } from "../pools.js";

export const path = () => "offers";
export const title = () => "Cheapest capacity";

/** What the state of a LeftoverNodePool means, in a word and in a sentence. */
export const POOLS = {
  Steady: ["Steady", "Its NodePools are up to date."],
  Changing: ["Changing", "A NodePool adds no more nodes, and is deleted once it is empty."],
  LaunchFailed: ["Launch failed", "A NodePool adds no nodes for now because a launch failed; the next one is used instead."],
  FeedFailing: ["Feed failing", "Some data of the cloud cannot be read now; its page says which."],
  BelowScore: ["Below score", "No offer has the placement score that the spec requires."],
  OverQuota: ["Over quota", "No nodes are added: the budget that the spec names is over quota."],
  NotReady: ["Not ready", "The NodePools stay as they are; its page says why."],
  Deleting: ["Deleting", "It was deleted; what it owns goes first."],
  Paused: ["Paused", "It is observed, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "It is invalid, so Headroom does not act for it."],
  Waiting: ["New", "No decision has been made about it yet."],
};

export const mount = listPage({
  title: "Cheapest capacity",
  note: "GPU machines of a cloud, ranked by price and risk, and kept as a ladder of Karpenter NodePools.",
  states: POOLS,
  headline,
  tiles: tilesOf,
  first: {
    title: "No pools yet",
    note: "A LeftoverNodePool ranks the GPU machines of a region by price and risk, and steers Karpenter to the best of them.",
    advice: "Save this as pool.yaml, fill in your own region and node class, and apply it. docs/cheapest-capacity.md explains every field, and which rights the operator needs in the cloud.",
  },
  table,
});

function headline(model, rows) {
  if (model.maySee === false) return "LeftoverNodePools are cluster-scoped; viewing them needs fleet-wide access.";
  const said = [`${format.count(sum(rows, "nodes") ?? 0, "node")} of ${format.count(rows.length, "pool")}.`, ...needsLook(rows)];
  const rate = sum(rows, "savedUsdPerHour");
  if (rate) said.push(`They cost ${dollars(rate)} an hour less than on-demand machines.`);
  return said.join(" ");
}

function tilesOf(rows) {
  const found = [tile("Nodes", format.number(sum(rows, "nodes") ?? 0), `in ${format.count(rows.length, "pool")}`)];
  const saved = sum(rows, "savedUsd");
  if (saved !== undefined) found.push(tile("Saved so far", format.dollars(saved), "against on-demand machines"));
  const rate = sum(rows, "savedUsdPerHour");
  if (rate !== undefined) found.push(tile("Saved in an hour", dollars(rate), "by the current nodes"));
  found.push(tile("Switches", format.number(sum(rows, "switches") ?? 0), "of the first place so far"));
  return found;
}

/** Cents, and below a dollar two digits more, as the operator says it. */
export function dollars(value) {
  const amount = Number(value);
  if (!Number.isFinite(amount)) return String(value);
  return Math.abs(amount) >= 1 ? format.dollars(amount) : `$${amount.toFixed(4)}`;
}

/** "3 active, 1 resting". */
export function rungsWords(rungs) {
  return Object.entries(rungs ?? {}).map(([state, count]) => `${format.number(count)} ${state.toLowerCase()}`).join(", ") || "none";
}

function table(route) {
  return poolTable(route, POOLS, {
    caption: "pools of cheapest capacity",
    columns: [
      nameColumn((row) => address({ kind: "LeftoverNodePool", name: row.name }), (row) => [row.region, row.capacityType].filter(Boolean).join(" · ")),
      stateColumn(POOLS, (row) => row.nodes),
      { key: "first", title: "First", sort: (row) => row.first, update: (cell, row) => text(cell, row.first ?? "none") },
      numberColumn("cost", "Cost / GPU-h", "costPerGpuHour", { say: dollars, missing: "unknown" }),
      numberColumn("score", "Score", "score", { optional: true }),
      { key: "rungs", title: "Rungs", sort: (row) => rungsWords(row.rungs), update: (cell, row) => text(cell, rungsWords(row.rungs)) },
      numberColumn("nodes", "Nodes", "nodes", { missing: "0" }),
      numberColumn("saved", "Saved", "savedUsd", { say: dollars, missing: "unknown", optional: true }),
    ],
    words: (row) => [row.region, row.capacityType, row.first],
  });
}
