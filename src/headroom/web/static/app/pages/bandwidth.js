// Bandwidth: how full the links of each node are and who has reserved what, the fullest first; for a tenant, their own reservations.

import { attribute, fill, h, keyed, show, text } from "../dom.js";
import * as format from "../format.js";
import { bars, legend, rate, remarks, STATES, stateWord, updateBars } from "../links.js";
import { address, badge, card, podLink, setBadge, Teller, tile, withIds } from "../parts.js";
import { Table } from "../table.js";

export const path = () => "bandwidth";
export const title = () => "Bandwidth";

const MOST_DRAWN = 100;
const ORDER = { bad: 0, warn: 1 };
const KINDS = {
  reserved: ["With reservations", (row) => row.pods > 0 || row.tone in ORDER],
  look: ["Overcommitted or not ready", (row) => row.tone in ORDER],
  free: ["Without reservations", (row) => !row.pods],
  all: ["All nodes", () => true],
};
const MODES = {
  Off: "Placement by bandwidth is off: it is accounted, and pods may go anywhere.",
  Native: "kube-scheduler counts it by extended resources of nodes.",
  Extender: "kube-scheduler asks the extender where pods with bandwidth may go.",
};

export function mount(main, route) {
  const lead = h("p", { class: "lead" });
  const numbers = h("dl", { class: "tiles" });
  const list = h("ul", { class: "nodes wide-nodes" });
  const status = h("p", { class: "quiet", role: "status" });
  const more = h("p", { class: "quiet" });
  const empty = h("p", { class: "empty", text: "No node matches. Clear the filter, or show all nodes." });
  const none = h("p", { class: "empty", text: "The cluster has no nodes yet. They appear here as soon as they join." });
  const search = h("input", { type: "search", placeholder: "Filter by node, or by pod of a full one", "aria-label": "Filter nodes", value: route.query.get("q") ?? "", spellcheck: "false", autocomplete: "off" });
  const kind = h("select", { "aria-label": "Which nodes" }, Object.entries(KINDS).map(([key, [label]]) => h("option", { value: key, text: label })));
  kind.value = Object.hasOwn(KINDS, route.query.get("show") ?? "") ? route.query.get("show") : "reserved";
  const tools = h("div", { class: "tools" }, search, kind, status);
  const colours = h("ul", { class: "holders", "aria-label": "Reservations, by namespace" });
  const key = h("p", { class: "quiet", text: "Each box is the reservation of one pod, by the colour of its namespace; a dashed one is link-local and leaves the network free. Amber is more than the link carries." });
  const nodes = card("Links by node", { id: "links" }, key, colours, tools, list, more, empty, none);
  const own = new Own(route);
  main.append(h("h1", { tabindex: "-1", text: "Bandwidth" }), lead, numbers, nodes, own.node);
  const told = new Teller((row) => stateWord(row.state));
  let rows = [];

  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = KINDS[kind.value][1];
    const found = rows.filter((row) => wanted(row) && matches(row, words));
    const drawn = found.slice(0, MOST_DRAWN);
    keyed(list, drawn, (row) => row.id, makeNode, updateNode);
    text(status, `${found.length === rows.length ? "" : `${format.number(found.length)} of `}${format.count(rows.length, "node")}`);
    text(more, `The first ${drawn.length} are shown; filter by name to find one of the ${format.number(found.length - drawn.length)} others.`);
    legend(colours, drawn);
    show(more, found.length > drawn.length);
    show(tools, rows.length);
    show(none, !rows.length);
    show(empty, rows.length && !found.length);
  };
  const changed = () => {
    draw();
    route.keep({ q: search.value, show: kind.value === "reserved" ? "" : kind.value });
  };
  search.addEventListener("input", changed);
  kind.addEventListener("change", changed);

  return {
    update(model) {
      rows = withIds(model.nodes).sort(compare);
      text(lead, headline(model, rows));
      fill(numbers, rows.length ? tiles(rows) : []);
      show(numbers, rows.length);
      show(nodes, model.maySee !== false);
      own.draw(model);
      draw();
      told.hear(rows.filter((row) => row.tone in ORDER || row.pods));
    },
    close() {},
  };
}

/** What needs a look first, then the fullest. */
function compare(a, b) {
  return (ORDER[a.tone] ?? 2) - (ORDER[b.tone] ?? 2) || b.percent - a.percent || (a.id < b.id ? -1 : 1);
}

function matches(row, words) {
  if (!words.length) return true;
  const has = [row.id, stateWord(row.state), ...(row.bar ?? []).map((each) => `${each.pod} ${each.owner ?? ""}`)].join(" ").toLowerCase();
  return words.every((word) => has.includes(word));
}

const total = (rows, link, way, place) => rows.reduce((sum, row) => sum + (row[link]?.[way][place] ?? 0), 0);

function headline(model, rows) {
  if (model.maySee === false) return "Which nodes there are takes the right to list nodes; what is reserved for pods of your namespaces is below.";
  const pods = rows.reduce((sum, row) => sum + row.pods, 0);
  const over = rows.filter((row) => row.state === "Overcommitted").length;
  const said = [`${format.count(pods, "pod has", "pods have")} bandwidth reserved on ${format.count(rows.filter((row) => row.pods).length, "node")} of ${format.number(rows.length)}.`];
  if (over) said.push(`${format.count(over, "node is", "nodes are")} overcommitted.`);
  said.push(MODES[model.mode] ?? "");
  return said.join(" ").trim();
}

function tiles(rows) {
  const found = ["up", "down"].map((way) => {
    const [used, size] = [total(rows, "network", way, 0), total(rows, "network", way, 1)];
    return tile(`Network ${way}`, rate(used), `reserved of ${rate(size)}`, size ? (100 * used) / size : 0, "plain");
  });
  const fullest = rows.reduce((best, row) => (row.percent > (best?.percent ?? 0) ? row : best), undefined);
  found.push(tile("Fullest link", format.percent(fullest?.percent ?? 0), fullest ? fullest.id : "nothing is reserved", Math.min(fullest?.percent ?? 0, 100), fullest?.percent > 100 ? "warn" : "plain"));
  const unclear = rows.reduce((sum, row) => sum + (row.edited ?? 0) + (row.malformed ?? 0), 0);
  found.push(tile("Pods to look at", format.number(unclear), unclear ? "edited after they were bound, or unreadable" : "none edited, all readable"));
  return found;
}

// --- one node ----------------------------------------------------------------------------------------------------------

function makeNode(row) {
  const head = h("div", { class: "node-head" }, h("h3", {}, h("a", { href: address({ kind: "Bandwidth", name: row.id }), text: row.id })), badge(), h("span", { class: "quiet" }));
  return h("li", { class: "node" }, head, bars(), h("p", { class: "quiet", hidden: true }));
}

function updateNode(item, row) {
  const [head, lines, why] = item.children;
  const [, mark, facts] = head.children;
  setBadge(mark, stateWord(row.state), row.tone, STATES[row.state]?.[1]);
  text(facts, [`${format.percent(row.percent) || "0%"} full`, format.count(row.pods, "pod")].join(" · "));
  updateBars(lines, row);
  text(why, row.message);
  show(why, row.message && row.state !== "Overcommitted");
}

// --- what a tenant sees ------------------------------------------------------------------------------------------------

/** Reservations of one's own pods, wherever they are. */
class Own {
  constructor(route) {
    this._table = new Table({
      caption: "your pods with bandwidth",
      what: "reservations",
      columns: reservationColumns({ node: true }),
      words: (row) => [row.id, row.node, row.owner, ...remarks(row)].join(" "),
      sort: "pod",
      empty: "Nothing is reserved for pods of your namespaces. Annotate a pod with kubernetes.io/egress-bandwidth and ingress-bandwidth to reserve some.",
      restore: Object.fromEntries(route.query),
      kept: route.keep,
    });
    this._rest = h("p", { class: "quiet" });
    this.node = card("Your reservations", { id: "own" }, this._table.node, this._rest);
  }

  draw(model) {
    const rows = withIds(model.own);
    this._table.rows(rows);
    const left = (model.ownCount ?? 0) - rows.length;
    text(this._rest, `and ${format.number(left)} more`);
    show(this._rest, left > 0);
    show(this.node, model.maySee === false);
  }
}

/** The columns of a table of reservations. */
export function reservationColumns({ node = false } = {}) {
  const amount = (key, name) => ({ key, title: name, numeric: true, sort: (row) => row[key], update: (cell, row) => text(cell, rate(row[key])) });
  return [
    { key: "pod", title: "Pod", lead: true, sort: (row) => row.id, update: (cell, row) => fill(cell, podLink(row.id)) },
    { key: "owner", title: "Workload", sort: (row) => row.owner, shown: (rows) => rows.some((row) => row.owner), update: (cell, row) => text(cell, row.owner ?? "") },
    ...(node ? [{ key: "node", title: "Node", sort: (row) => row.node, update: (cell, row) => text(cell, row.node) }] : []),
    amount("up", "Up"),
    amount("down", "Down"),
    { key: "remarks", title: "Remarks", shown: (rows) => rows.some((row) => remarks(row).length), update: remarksCell },
  ];
}

function remarksCell(cell, row) {
  fill(cell, remarks(row).map((each) => h("small", { text: each })));
  attribute(cell, "data-tone", row.edited || row.malformed ? "warn" : undefined);
}
