// One namespace, which is a team's: its budgets, who used what in it, who is queued or pending, and what it saves.

import { fill, h, show, time } from "../dom.js";
import { Entries } from "../entries.js";
import * as format from "../format.js";
import { needShort } from "../models.js";
import { address, badge, budgetAddress, card, next, outward, podLink, setBadge, setNext, STATES, stateWord, tile, unitLink, withIds } from "../parts.js";
import { PlainTable } from "../table.js";
import { whoCard } from "../who.js";

export const path = ({ name }) => `namespaces/${encodeURIComponent(name)}`;
export const title = ({ name }) => name;
export const gone = ({ name }) => `There is nothing left in namespace ${name}, or you may no longer see it. The page shows its last state.`;

const ORDER = { bad: 0, warn: 1, good: 2, idle: 3 };
const STARTS = { NeverFits: "never: it exceeds the quota on its own", Releasing: "now" };

export function mount(main, route) {
  const { name } = route;
  const lead = h("p", { class: "lead" });
  const tools = h("p", { class: "outwards" });
  const tiles = h("dl", { class: "tiles" });
  const budgets = listCard("Budgets", "budgets", ["Budget", "State", { title: "Used", figure: true }, { title: "GPU-hours", figure: true }, "What comes next"]);
  const who = whoCard("Who used it");
  const queue = listCard("Queue", "queue", ["Queued", { title: "GPUs", figure: true }, "By budget", "Since", "Estimated start"]);
  const pending = listCard("Pending pods", "pending", ["Pod", { title: "GPUs", figure: true }, "Since", "Needs", "Why"]);
  const spot = listCard("Spot pools", "spot", ["Pool", "State", { title: "Machines", figure: true }, { title: "Dollars an hour", figure: true }]);
  const entries = new Entries({ empty: "No decisions in the last 7 days." });
  const log = h("a", { href: `#/decisions?${new URLSearchParams({ q: `/${name}/`, since: "168h" })}`, text: "All of them" });
  main.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/", text: "Overview" }), " / namespaces"),
    h("h1", { tabindex: "-1", text: name }),
    lead,
    tools,
    tiles,
    budgets.node,
    queue.node,
    pending.node,
    h("div", { class: "pair" }, who.node, spot.node),
    card("Decisions", { id: "history", note: "Of the last 7 days, newest first.", aside: log }, entries.node),
  );

  return {
    update(model) {
      const rows = withIds(model.budgets).sort((a, b) => (ORDER[a.tone] ?? 4) - (ORDER[b.tone] ?? 4) || (a.id < b.id ? -1 : 1));
      fill(lead, headline(rows));
      fill(tools, outward(model.tools));
      show(tools, model.tools?.length);
      fill(tiles, tilesOf(model, rows));
      budgets.draw(rows.map(budgetRow));
      who.draw(model.who);
      queue.draw((model.queue ?? []).map(queueRow));
      pending.draw((model.pending ?? []).map(pendingRow));
      spot.draw(withIds(model.spot).map(spotRow));
      entries.draw(model.history);
    },
    close() {},
  };
}

function headline(rows) {
  if (!rows.length) return ["No budget counts the pods of this namespace."];
  const soonest = rows.filter((row) => row.exhaustedAt && row.tone !== "bad").sort((a, b) => (a.exhaustedAt < b.exhaustedAt ? -1 : 1))[0];
  const bad = rows.filter((row) => row.tone === "bad");
  if (bad.length) return [`${format.count(bad.length, "budget needs", "budgets need")} a look: ${format.listed(bad.map((row) => row.id))}.`];
  return soonest ? [`Next over quota: ${soonest.id} `, time(soonest.exhaustedAt, "ahead"), "."] : ["All budgets are within their quotas."];
}

function tilesOf({ numbers, who, queue, pending }, rows) {
  const found = [tile("GPUs now", format.number(numbers.gpus), `allocated to ${format.count(numbers.running, "pod")}${numbers.users ? ` of ${format.count(numbers.users, "user")}` : ""}`)];
  if (who) found.push(tile(`Used in the last ${format.window(who.hours)}`, format.number(who.gpuHours), "GPU-hours"));
  const left = rows.filter((row) => row.quotaGpuHours).map((row) => Math.max(0, Number(row.quotaGpuHours) - Number(row.consumedGpuHours ?? 0)));
  if (left.length === 1) found.push(tile("Left", format.left(left[0]), `of ${format.number(rows.find((row) => row.quotaGpuHours).quotaGpuHours)} GPU-hours`));
  found.push(tile("Pods queued", format.number((queue ?? []).reduce((sum, each) => sum + (each.pods ?? 1), 0)), `${format.count(pending?.length ?? 0, "pod")} pending`));
  if (numbers.savedUsdPerHour !== undefined) found.push(tile("Saves now", format.dollars(numbers.savedUsdPerHour), "an hour, against on-demand machines of the same type"));
  return found;
}

function budgetRow(row) {
  const state = badge();
  setBadge(state, stateWord(row.state), row.tone, STATES[row.state]?.[1]);
  const comes = h("span", { title: next(row)[0] });
  setNext(comes, row);
  const hours = row.quotaGpuHours ? format.usedOf(row.consumedGpuHours ?? "0", row.quotaGpuHours, "GPU-hours").join(" of ") : format.number(row.consumedGpuHours ?? "0");
  return [h("a", { href: budgetAddress(row.namespace, row.name), text: row.id }), state, format.percent(row.percent), hours, comes];
}

function queueRow(each) {
  const starts = each.startsAt ? time(each.startsAt, "ahead") : STARTS[each.state] ?? "not known yet";
  const name = h("span", {}, unitLink(each.unit, each.pod), each.pods > 1 ? ` (${each.pods} pods)` : "");
  return [name, format.number(each.gpus), h("a", { href: budgetAddress(...each.budget.split("/")), text: each.budget }), each.since ? time(each.since) : "", starts];
}

function pendingRow(pod) {
  return [podLink(pod.pod), format.number(pod.gpus), time(pod.since), needShort(pod.needs), pod.why];
}

function spotRow(row) {
  const state = badge();
  setBadge(state, row.state, row.tone, row.message);
  const href = address({ kind: "Spotpool", namespace: row.namespace, name: row.name });
  return [h("a", { href, text: row.id }), state, row.size === undefined ? "" : format.number(row.size), row.pricePerHour ? format.dollars(row.pricePerHour) : ""];
}

/** A card with a small table, which is not there while it is empty. */
function listCard(name, id, heads) {
  const table = new PlainTable(name, heads);
  const node = card(name, { id }, h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": name }, table.node));
  return {
    node,
    draw(rows) {
      fill(table.body, rows.map((cells) => table.row(cells)));
      show(node, rows.length);
    },
  };
}
