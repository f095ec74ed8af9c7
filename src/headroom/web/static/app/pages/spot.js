// The spot pools: how many machines each has of how many it may have, what they cost, and which pods are unserved.

import { fill, h, text } from "../dom.js";
import * as format from "../format.js";
import { address, tile } from "../parts.js";
import { listPage, nameColumn, needsLook, numberColumn, poolTable, stateColumn, sum } from "../pools.js";

export const path = () => "spot";
export const title = () => "Spot pools";

/** What a pool's state means, in a word and in a sentence. */
export const POOLS = {
  Steady: ["Steady", "It has the machines it needs."],
  Changing: ["Changing", "Machines are launched, drained or ended."],
  MachinesMissing: ["Machines missing", "It has fewer machines than desired, and cannot launch more now; its page says why."],
  Unserved: ["Unserved pods", "This pool launches no machine for some pending pods; its page says why."],
  Braked: ["Braked", "Nothing is launched or ended: too many machines are missing from the cloud's list at once."],
  JoinFailing: ["Join failing", "The last machines never became nodes, so launches are held back."],
  GatewayFailing: ["Gateway failing", "The targets of its gateway cannot be read or changed now."],
  Orphans: ["Orphans", "Machines of this cluster belong to no Spotpool."],
  NotReady: ["Not ready", "The pool cannot act; its page says why."],
  Deleting: ["Deleting", "It was deleted; what it owns goes first."],
  Paused: ["Paused", "It is observed, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "The pool is invalid, so Headroom does not act for it."],
  Waiting: ["New", "No decision has been made about it yet."],
};

/** What a slot is doing, with its tone, the colour of its bar and a sentence; in the order in which people think of them. */
export const SLOTS = {
  Running: ["Running", "good", "On", "Its machine exists."],
  Launching: ["Launching", "busy", "Booting", "Its launch was asked for, and no machine is known yet."],
  Cancelling: ["Cancelling", "busy", "Draining", "It is not needed any more, but its launch may have come about; it counts until that is known."],
  Draining: ["Draining", "busy", "Draining", "Its node takes no new pods, and pods are leaving it."],
  Ending: ["Ending", "busy", "Sleeping", "Its machine is being ended."],
};

export const mount = listPage({
  title: "Spot pools",
  note: "Cloud machines, kept between the minimum and the maximum of each pool.",
  states: POOLS,
  headline: (model, rows) => headline(rows),
  tiles: tilesOf,
  first: {
    title: "No spot pools yet",
    note: "A Spotpool keeps GPU machines alive in a cloud: between a minimum and a maximum, or as many as pending pods need.",
    advice: "Save this as pool.yaml, fill in your own region, types and image, and apply it. docs/spot-pools.md explains every field, the Secret with the cloud's keys, and who may read it.",
  },
  table,
});

function headline(rows) {
  const running = sum(rows, "size") ?? 0;
  const said = [`${format.count(running, "machine")} of at most ${format.number(sum(rows, "maximum") ?? 0)}.`, ...needsLook(rows)];
  const unserved = sum(rows, "unservedPods");
  if (unserved) said.push(`${format.count(unserved, "pending pod is", "pending pods are")} unserved.`);
  return said.join(" ");
}

function tilesOf(rows) {
  const size = sum(rows, "size") ?? 0;
  const maximum = sum(rows, "maximum") ?? 0;
  const found = [
    tile("Machines", format.number(size), `${format.number(sum(rows, "minimum") ?? 0)} to ${format.number(maximum)}`, maximum ? (100 * size) / maximum : 0, "plain"),
    tile("On their way", format.number(rows.reduce((total, row) => total + (row.states?.Launching ?? 0), 0)), "machines being launched"),
  ];
  const price = sum(rows, "pricePerHour");
  if (price !== undefined) found.push(tile("Cost", `${format.dollars(price)} / h`, "where prices are known"));
  const unserved = sum(rows, "unservedPods") ?? 0;
  found.push(tile("Unserved pods", format.number(unserved), unserved ? "pending, and no machine is launched for them" : "every pod is served"));
  const orphans = sum(rows, "orphans");
  if (orphans) found.push(tile("Orphans", format.number(orphans), "machines that no Spotpool owns"));
  return found;
}

/** "2 running, 1 launching". */
export function statesWords(states) {
  const found = Object.keys(SLOTS).filter((state) => states?.[state]);
  return found.map((state) => `${format.number(states[state])} ${SLOTS[state][0].toLowerCase()}`).join(", ") || "none";
}

function machinesCell(cell, row) {
  if (!cell.firstChild) cell.append(h("span", { class: "amount" }), h("div", { class: "states-bar", "aria-hidden": "true" }));
  text(cell.firstChild, statesWords(row.states));
  const parts = Object.keys(SLOTS).filter((state) => row.states?.[state]);
  fill(cell.lastChild, parts.map((state) => {
    const part = h("span", { class: `past-${SLOTS[state][2]}` });
    part.style.flexGrow = row.states[state];
    return part;
  }));
}

export const rangeWords = (row) => (row.maximum === undefined ? "" : `${format.number(row.minimum ?? 0)} to ${format.number(row.maximum)}`);

function table(route) {
  return poolTable(route, POOLS, {
    caption: "spot pools",
    columns: [
      nameColumn((row) => address({ kind: "Spotpool", namespace: row.namespace, name: row.name }), (row) => [row.provider, row.region].filter(Boolean).join(" · ")),
      stateColumn(POOLS, (row) => row.size),
      { key: "machines", title: "Machines", sort: (row) => -(row.size ?? 0), update: machinesCell },
      { key: "range", title: "Range", numeric: true, sort: (row) => row.maximum, update: (cell, row) => text(cell, rangeWords(row)) },
      { key: "types", title: "Types", sort: (row) => (row.types ?? []).join(), update: (cell, row) => text(cell, format.listed(row.types ?? [], 2)) },
      numberColumn("price", "Cost / h", "pricePerHour", { say: format.dollars, missing: "unknown", optional: true }),
      numberColumn("unserved", "Unserved pods", "unservedPods", { missing: "0" }),
    ],
    words: (row) => [row.provider, row.region, ...(row.types ?? [])],
  });
}
