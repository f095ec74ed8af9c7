// The machines: GPUs by model, each node as a row of its GPUs with the pods that have them, and the pods without a node.

import { hue } from "../colours.js";
import { attribute, fill, h, keyed, show, text, time } from "../dom.js";
import * as format from "../format.js";
import { modelLink, modelsCard } from "../models.js";
import { badge, budgetAddress, card, podLink, setBadge } from "../parts.js";
import { PlainTable } from "../table.js";

export const path = () => "nodes";
export const title = () => "Nodes";

const MOST_HOLDERS = 12;
const MOST_CARDS = 8; // as in parts.css
const POWER = { Off: "asleep", Sleeping: "going to sleep", Booting: "booting" };
const KINDS = {
  all: ["All nodes", () => true],
  free: ["With free GPUs", (node) => Number(node.free) > 0 && node.ready && !node.cordoned],
  full: ["Full", (node) => Number(node.gpus) > 0 && Number(node.free) === 0],
  trouble: ["Not ready or cordoned", (node) => (!node.ready || node.cordoned) && !POWER[node.power]],
  asleep: ["Asleep or booting", (node) => Boolean(POWER[node.power])],
  plain: ["Without GPUs", (node) => !Number(node.gpus)],
};

export function mount(main, route) {
  const lead = h("p", { class: "lead" });
  const list = h("ul", { class: "nodes" });
  const status = h("p", { class: "quiet", role: "status" });
  const empty = h("p", { class: "empty", text: "No node matches. Clear the filter to see all of them." });
  const none = h("p", { class: "empty", text: "The cluster has no nodes yet. They appear here as soon as they join." });
  const search = h("input", { type: "search", placeholder: "Filter by node, model, zone, pod or budget", "aria-label": "Filter nodes", value: route.query.get("q") ?? "", spellcheck: "false", autocomplete: "off" });
  const choices = Object.entries(KINDS).map(([key, [label]]) => h("option", { value: key, text: label }));
  const kind = h("select", { "aria-label": "Which nodes" }, choices);
  kind.value = Object.hasOwn(KINDS, route.query.get("show") ?? "") ? route.query.get("show") : "all";
  const tools = h("div", { class: "tools" }, search, kind, status);
  const waiting = new Waiting();
  const models = modelsCard();
  const legend = h("ul", { class: "holders", "aria-label": "GPUs allocated, by budget" });
  const key = h("p", { class: "quiet", text: "Each box is one pod, as wide as its GPUs; boxes of one namespace have one colour, here and on other pages. Hatched GPUs belong to no pod." });
  const users = new Users();
  const all = card("GPUs by node", { id: "nodes" }, tools, users.node, key, legend, list, empty, none);
  main.append(h("h1", { tabindex: "-1", text: "Nodes" }), lead, models.node, waiting.node, all);
  let shown = {};

  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = KINDS[kind.value][1];
    const all = Object.keys(shown).sort(new Intl.Collator("en", { numeric: true }).compare).map((name) => named(name, shown[name]));
    const rows = all.filter((row) => wanted(row.node) && matches(row, words));
    keyed(list, byModel(rows), (row) => row.model ?? row.name, (row) => (row.model === undefined ? makeNode() : h("li", { class: "model" }, h("h3"))), (item, row) => (row.model === undefined ? updateNode(item, row) : text(item.firstChild, row.heading)));
    text(status, rows.length === all.length ? format.count(all.length, "node") : `${rows.length} of ${format.count(all.length, "node")} match`);
    show(tools, all.length);
    show(none, !all.length);
    show(empty, all.length && !rows.length);
    const nodes = rows.map((row) => row.node);
    const held = holders(nodes);
    fill(legend, held.slice(0, MOST_HOLDERS).map(holderItem), held.length > MOST_HOLDERS ? h("li", { class: "quiet", text: `and ${held.length - MOST_HOLDERS} more` }) : null);
    users.draw(nodes);
  };
  const changed = () => {
    draw();
    route.keep({ q: search.value, show: kind.value === "all" ? "" : kind.value });
  };
  search.addEventListener("input", changed);
  kind.addEventListener("change", changed);

  return {
    update(model) {
      shown = model.nodes ?? {};
      text(lead, headline(model));
      show(all, model.mayList !== false);
      models.draw(model.models, model.needs);
      waiting.draw(model);
      holders(Object.values(shown)); // which gives out the colours by name, whatever the filter leaves
      draw();
    },
    close() {},
  };
}

const headings = new Map();

/** The nodes of each model together, each model under its name; one model alone needs no name. */
function byModel(rows) {
  const groups = new Map();
  for (const row of rows) {
    const model = row.node.model ?? "";
    groups.set(model, [...(groups.get(model) ?? []), row]);
  }
  if (groups.size < 2) return rows;
  const sorted = [...groups].sort(([a], [b]) => (!a) - (!b) || (a < b ? -1 : 1));
  return sorted.flatMap(([model, members]) => [headingOf(model, members.length), ...members]);
}

/** The same object for the same heading, so that it stays. */
function headingOf(model, count) {
  const heading = `${model || "Without GPUs"}: ${format.count(count, "node")}`;
  if (!headings.has(heading)) headings.set(heading, { model: `model ${model}`, heading });
  return headings.get(heading);
}

const rows = new WeakMap();

function named(name, node) {
  if (!rows.has(node)) rows.set(node, { name, node });
  return rows.get(node);
}

function matches({ name, node }, words) {
  if (!words.length) return true;
  const pods = (node.pods ?? []).map((pod) => `${pod.pod ?? ""} ${(pod.budgets ?? []).join(" ")}`);
  const has = [name, node.model, node.type, node.zone, ...pods].join(" ").toLowerCase();
  return words.every((word) => has.includes(word));
}

function headline(model) {
  if (model.mayList === false) return "You may not list nodes in this cluster, so only pods without a node are shown.";
  const nodes = Object.values(model.nodes ?? {});
  const ready = nodes.filter((node) => node.ready).length;
  const free = nodes.reduce((sum, node) => sum + (node.ready && !node.cordoned ? Number(node.free) : 0), 0);
  const asleep = nodes.filter((node) => POWER[node.power]).length;
  const sleep = asleep ? `, ${asleep} asleep or booting` : "";
  return `${ready} of ${format.count(nodes.length, "node")} are ready${sleep}; ${format.count(free, "GPU")} ${free === 1 ? "is" : "are"} free. ${whoWaits(model)}`.trim();
}

const STATES = { Queued: "queued by a budget", Gated: "kept by somebody else's gate", Pending: "pending" };

/** The pods without a node, by what keeps them: free GPUs help only those that are pending. */
function whoWaits({ waiting, waitingCount }) {
  const pods = waiting ?? [];
  const all = waitingCount ?? pods.length;
  if (!all) return "";
  if (all > pods.length) return `${format.count(all, "pod has", "pods have")} no node.`; // of the others it is not known here why
  const found = Object.entries(STATES).map(([state, words]) => [pods.filter((pod) => pod.state === state).length, words]).filter(([count]) => count);
  const [[first, words], ...others] = found;
  return `${format.count(first, "pod is", "pods are")} ${[words, ...others.map(([count, each]) => `${count} ${each}`)].join(", ")}.`;
}

// --- one node ----------------------------------------------------------------------------------------------------------

function makeNode() {
  const pods = h("ul", { class: "node-pods", hidden: true });
  const toggle = h("button", { type: "button", class: "more", "aria-expanded": "false" });
  toggle.addEventListener("click", () => {
    show(pods, pods.hidden);
    attribute(toggle, "aria-expanded", String(!pods.hidden));
  });
  const head = h("div", { class: "node-head" }, h("h3"), badge(), h("span", { class: "quiet" }), toggle);
  return h("li", { class: "node" }, head, h("div", { class: "strip", "aria-hidden": "true" }), pods);
}

function updateNode(item, { name, node }) {
  const [head, strip, list] = item.children;
  const [heading, mark, facts, toggle] = head.children;
  text(heading, name);
  const asleep = POWER[node.power];
  const sick = asleep ?? (!node.ready ? "not ready" : node.cordoned ? "cordoned" : "");
  setBadge(mark, sick, asleep ? (node.power === "Off" ? "idle" : "busy") : node.ready ? "warn" : "bad");
  show(mark, sick);
  const said = [node.type, node.zone, Number(node.gpus) ? `${format.number(node.held)} of ${format.count(node.gpus, "GPU")} allocated` : "no GPUs", node.pricePerHour && `${format.dollars(node.pricePerHour)} / h`];
  fill(facts, said.filter(Boolean).join(" · "), node.reclaimAt ? [" · reclaimed ", time(node.reclaimAt, "ahead")] : null);
  show(strip, Number(node.gpus));
  const holding = (node.pods ?? []).filter((pod) => Number(pod.gpus) > 0);
  fill(strip, holding.map(box), Number(node.free) > 0 ? sized(h("span", { class: "box free", text: sick || "free", title: `${format.count(node.free, "GPU")} ${sick || "free"}` }), node.free) : null);
  const pods = node.pods ?? [];
  show(toggle, pods.length);
  text(toggle, format.count(pods.length, "pod"));
  attribute(toggle, "aria-label", `${format.count(pods.length, "pod")} on ${name}`);
  fill(list, pods.map(podLine));
}

function sized(node, gpus) {
  node.style.flexGrow = Number(gpus);
  return node;
}

function box(pod) {
  const covered = pod.budgets?.length ? pod.budgets.join(", ") : "no budget";
  const who = pod.pod ?? "a pod of another team";
  const node = h("span", { class: "box", title: `${who}: ${format.count(pod.gpus, "GPU")}, ${covered}`, text: pod.pod?.split("/").pop() ?? "" });
  attribute(node, "data-hue", pod.pod ? (pod.budgets?.length ? hueOf(pod.budgets[0]) : "none") : "unseen");
  return sized(node, pod.gpus);
}

function podLine(pod) {
  const covered = pod.budgets?.length ? pod.budgets.join(", ") : "no budget";
  const said = [pod.pod ?? "a pod of another team", format.count(pod.gpus, "GPU"), covered];
  if (pod.state && pod.state !== "Running") said.push(pod.state);
  return h("li", {}, pod.pod ? podLink(pod.pod) : said[0], ` · ${said.slice(1).join(" · ")}`);
}

/** A budget has the colour of its namespace, as everywhere. */
const hueOf = (budget) => hue(budget.split("/")[0]);

/** Who has the GPUs of each model, of the nodes that match: by budget, the most first. */
class Users {
  constructor() {
    this._table = new PlainTable("GPUs allocated, by model and budget", ["Model", "Budget", { title: "GPUs", figure: true }, { title: "Nodes", figure: true }]);
    const wide = h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "GPUs allocated, by model and budget" }, this._table.node);
    this.node = h("details", { class: "users" }, h("summary", { text: "Who uses them" }), wide);
  }

  draw(nodes) {
    const groups = new Map();
    for (const node of nodes) groups.set(node.model ?? "", [...(groups.get(node.model ?? "") ?? []), node]);
    const sorted = [...groups].filter(([model]) => model).sort(([a], [b]) => (a < b ? -1 : 1));
    const rows = sorted.flatMap(([model, members]) => holders(members).map(([budget, gpus]) => [modelLink(model), holderName(budget), format.number(gpus), format.number(members.filter((node) => holders([node]).some(([key]) => key === budget)).length)]));
    fill(this._table.body, rows.map((cells) => this._table.row(cells)));
    show(this.node, rows.length);
  }
}

/** How much of it is whose, by budget, the largest first; it is also the key to the colours. */
function holders(nodes) {
  const sums = new Map();
  for (const node of nodes) {
    for (const pod of node.pods ?? []) {
      const key = pod.pod ? pod.budgets?.[0] ?? "" : null;
      sums.set(key, (sums.get(key) ?? 0) + Number(pod.gpus));
    }
  }
  const held = [...sums].filter(([, gpus]) => gpus > 0).sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1));
  for (const name of [...sums.keys()].filter(Boolean).sort()) hueOf(name);
  return held;
}

function holderName(budget) {
  return budget ? h("a", { href: budgetAddress(...budget.split("/")), text: budget }) : budget === null ? "other teams" : "no budget";
}

function holderItem([budget, gpus]) {
  const swatch = h("span", { class: "box swatch", "aria-hidden": "true", "data-hue": budget === null ? "unseen" : budget ? hueOf(budget) : "none" });
  return h("li", {}, swatch, holderName(budget), h("span", { class: "quiet", text: ` ${format.number(gpus)}` }));
}

// --- pods without a node -------------------------------------------------------------------------------------------------

const TONES = { Queued: "busy", Gated: "idle", Pending: "warn" };

class Waiting {
  constructor() {
    this._table = new PlainTable("Pods without a node", ["Pod", { title: "GPUs", figure: true }, "Since", "State", "Estimated start", "Why"]);
    this._rest = h("p", { class: "quiet" });
    const wide = h("div", { class: "wide short", role: "region", tabindex: "0", "aria-label": "Pods without a node" }, this._table.node);
    this._every = h("button", { type: "button", class: "more every-row" });
    this._every.addEventListener("click", () => {
      wide.classList.add("every");
      this._every.remove();
    });
    this.node = card("Pods without a node", { id: "waiting" }, wide, this._every, this._rest);
  }

  draw(model) {
    const pods = model.waiting ?? [];
    keyed(this._table.body, pods, (pod) => pod.pod ?? pod, () => this._table.row(), (row, pod) => {
      const [who, gpus, since, state, starts, why] = row.children;
      fill(who, pod.pod ? podLink(pod.pod) : "a pod of another team");
      text(gpus, format.number(pod.gpus));
      fill(since, pod.since ? time(pod.since) : "");
      fill(state, h("span", { class: "badge", "data-tone": TONES[pod.state], text: pod.state }));
      fill(starts, pod.startsAt ? time(pod.startsAt, "ahead") : pod.state === "Queued" ? "not known yet" : "");
      fill(why, pod.budget ? h("span", {}, "by budget ", h("a", { href: budgetAddress(...pod.budget.split("/")), text: pod.budget })) : pod.why);
    });
    text(this._every, `Show all ${format.number(pods.length)}`);
    show(this._every, pods.length > MOST_CARDS);
    const left = (model.waitingCount ?? pods.length) - pods.length;
    text(this._rest, left > 0 ? `and ${format.number(left)} more` : "");
    show(this._rest, left > 0);
    show(this.node, pods.length);
  }
}
