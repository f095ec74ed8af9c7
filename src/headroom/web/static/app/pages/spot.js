// The spot pools: how many machines each has of how many it may have, what they cost, and which pods are unserved.

import { attribute, fill, h, show, text } from "../dom.js";
import * as format from "../format.js";
import { address, badge, card, setBadge, Teller, tile, withIds } from "../parts.js";
import { Table } from "../table.js";

export const path = () => "spot";
export const title = () => "Spot pools";

/** What a pool's state means, in a word and in a sentence. */
export const POOLS = {
  Steady: ["Steady", "It has the machines that it needs."],
  Changing: ["Changing", "Machines are launched, drained or ended."],
  MachinesMissing: ["Machines missing", "It has fewer machines than it should, and cannot launch them now; its page says why."],
  Unserved: ["Unserved pods", "Pods are pending that this pool launches no machine for; its page says why."],
  Braked: ["Braked", "Nothing is launched or ended: too many machines are missing from the cloud's list at once."],
  JoinFailing: ["Join failing", "The last machines never became nodes, so launches are held back."],
  GatewayFailing: ["Gateway failing", "The targets of its gateway cannot be read or changed now."],
  Orphans: ["Orphans", "Machines of this cluster belong to no Spotpool."],
  NotReady: ["Not ready", "The pool cannot act; its page says why."],
  Deleting: ["Deleting", "It was deleted; what it owns goes first."],
  Paused: ["Paused", "It is observed, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "Something in this pool is wrong, so nothing is done for it."],
  Waiting: ["New", "Nothing has been decided about it yet."],
};

/** What a slot is doing, with its tone, the colour of its bar and a sentence; in the order in which people think of them. */
export const SLOTS = {
  Running: ["Running", "good", "On", "Its machine exists."],
  Launching: ["Launching", "busy", "Booting", "Its launch was asked for, and no machine is known yet."],
  Cancelling: ["Cancelling", "busy", "Draining", "It is not needed any more, but its launch may have come about; it counts until that is known."],
  Draining: ["Draining", "busy", "Draining", "Its node takes no new pods, and pods are leaving it."],
  Ending: ["Ending", "busy", "Sleeping", "Its machine is being ended."],
};

const ORDER = { bad: 0, warn: 1, good: 2, idle: 3 };

export function mount(main, route) {
  const lead = h("p", { class: "lead" });
  const tiles = h("dl", { class: "tiles" });
  const table = poolTable(route);
  const pools = card("Pools", { id: "pools", note: "Cloud machines, kept between the minimum and the maximum of each pool." }, table.node);
  const sample = h("code");
  const first = firstSteps(sample);
  main.append(h("h1", { tabindex: "-1", text: "Spot pools" }), lead, first, tiles, pools);
  const told = new Teller((row) => POOLS[row.state]?.[0] ?? row.state);

  return {
    update(model) {
      const rows = withIds(model.pools);
      text(lead, headline(rows));
      text(sample, model.example);
      show(first, model.example);
      show(lead, !model.example);
      fill(tiles, rows.length ? tilesOf(rows) : []);
      show(tiles, rows.length);
      table.rows(rows);
      show(pools, rows.length);
      told.hear(rows);
    },
    close() {},
  };
}

/** Adds one number up over all pools; `undefined` where none has it. */
function sum(rows, name) {
  const known = rows.filter((row) => row[name] !== undefined);
  return known.length ? known.reduce((total, row) => total + Number(row[name]), 0) : undefined;
}

function headline(rows) {
  const bad = rows.filter((row) => row.tone === "bad").map((row) => row.id);
  const running = sum(rows, "size") ?? 0;
  const said = [`${format.count(running, "machine")} of at most ${format.number(sum(rows, "maximum") ?? 0)}.`];
  if (bad.length) said.push(`${format.count(bad.length, "pool needs", "pools need")} a look: ${format.listed(bad)}.`);
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
  if (price !== undefined) found.push(tile("Cost", `${format.dollars(price)} / h`, "as far as prices are known"));
  const unserved = sum(rows, "unservedPods") ?? 0;
  found.push(tile("Unserved pods", format.number(unserved), unserved ? "pending, and no machine is launched for them" : "every pod is served"));
  const orphans = sum(rows, "orphans");
  if (orphans) found.push(tile("Orphans", format.number(orphans), "machines that no Spotpool owns"));
  return found;
}

function firstSteps(sample) {
  return card(
    "No spot pools yet",
    { id: "first-steps", note: "A Spotpool keeps GPU machines alive in a cloud: between a minimum and a maximum, or as many as pending pods need." },
    h("p", { text: "Save this as pool.yaml, fill in your own region, types and image, and apply it. docs/spot-pools.md explains every field, the Secret with the cloud's keys, and who may read it." }),
    h("pre", { tabindex: "0", "aria-label": "A first pool" }, sample),
    h("pre", { tabindex: "0", "aria-label": "The command" }, h("code", { text: "kubectl apply -f pool.yaml" })),
  );
}

// --- the table ---------------------------------------------------------------------------------------------------------

function nameCell(cell, row) {
  if (!cell.firstChild) cell.append(h("a", { class: "whole" }), h("small"));
  attribute(cell.firstChild, "href", address({ kind: "Spotpool", namespace: row.namespace, name: row.name }));
  text(cell.firstChild, row.id);
  text(cell.lastChild, [row.provider, row.region].filter(Boolean).join(" · "));
}

function stateCell(cell, row) {
  if (!cell.firstChild) cell.append(badge());
  const [words, meaning] = POOLS[row.state] ?? [row.state];
  setBadge(cell.firstChild, words, row.tone, row.message || meaning);
}

/** The worst state first, and most machines among their like. */
function urgency(row) {
  return (ORDER[row.tone] ?? 4) * 1e9 - (row.size ?? 0);
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

function poolTable(route) {
  return new Table({
    caption: "spot pools",
    what: "pools",
    columns: [
      { key: "name", title: "Pool", lead: true, sort: (row) => row.id, update: nameCell },
      { key: "state", title: "State", sort: urgency, update: stateCell },
      { key: "machines", title: "Machines", sort: (row) => -(row.size ?? 0), update: machinesCell },
      { key: "range", title: "Range", numeric: true, sort: (row) => row.maximum, update: (cell, row) => text(cell, rangeWords(row)) },
      { key: "types", title: "Types", sort: (row) => (row.types ?? []).join(), update: (cell, row) => text(cell, format.listed(row.types ?? [], 2)) },
      { key: "price", title: "Cost / h", numeric: true, shown: (rows) => rows.some((row) => row.pricePerHour !== undefined), sort: (row) => (row.pricePerHour === undefined ? undefined : Number(row.pricePerHour)), update: priceCell },
      { key: "unserved", title: "Unserved pods", numeric: true, sort: (row) => row.unservedPods ?? 0, update: (cell, row) => text(cell, format.number(row.unservedPods ?? 0)) },
    ],
    words: (row) => [row.id, row.provider, row.region, ...(row.types ?? []), row.state, POOLS[row.state]?.[0], row.message].join(" "),
    sort: "state",
    empty: "There is no pool.",
    restore: Object.fromEntries(route.query),
    kept: route.keep,
  });
}

function priceCell(cell, row) {
  text(cell, row.pricePerHour === undefined ? "unknown" : format.dollars(row.pricePerHour));
  attribute(cell, "title", row.pricePerHour);
}
