// The links of a node as bars: what is reserved of the network card and the virtual switch, up and down, by whom, and how much is left.

import { hue } from "./colours.js";
import { attribute, fill, h } from "./dom.js";
import * as format from "./format.js";

const LINKS = { network: "Network", local: "Switch" };
const WAYS = { up: "up", down: "down" };

/** What a node's state means, in a word and in a sentence. */
export const STATES = {
  Free: ["Free", "No pod has bandwidth reserved there."],
  Reserved: ["Within capacity", "No link has more reserved than it carries."],
  Overcommitted: ["Overcommitted", "A link has more reserved than it carries. Running pods are left alone."],
  InvalidAnnotation: ["Annotation unreadable", "An annotation of the node cannot be read, and is ignored."],
  NodeNotFound: ["No such node", "There is no node of that name."],
  Paused: ["Paused", "It is accounted, but has no effects while spec.paused is set."],
  Invalid: ["Invalid", "The Bandwidth is invalid; its page says why."],
  Waiting: ["New", "No decision has been made about it yet."],
};

export const stateWord = (state) => STATES[state]?.[0] ?? state;

/** "450 Mbps", "1.2 Gbps": rates as people read them. */
export function rate(mbps) {
  return mbps >= 1000 ? `${format.number(mbps / 1000)} Gbps` : `${format.number(mbps)} Mbps`;
}

/** "40 of 25 Gbps": both in the unit of the larger one. */
function pair(used, size) {
  const [unit, name] = Math.max(used, size) >= 1000 ? [1000, "Gbps"] : [1, "Mbps"];
  return `${format.number(used / unit)} of ${format.number(size / unit)} ${name}`;
}

const namespaceOf = (pod) => pod.slice(0, pod.indexOf("/"));

/** Four bars under each other; `updateBars` gives them their content. */
export function bars() {
  return h("dl", { class: "links" });
}

export function updateBars(list, row) {
  const lines = Object.keys(LINKS).filter((link) => row[link]).flatMap((link) => Object.keys(WAYS).map((way) => line(link, way, row)));
  fill(list, lines);
}

function line(link, way, row) {
  const [used, size] = row[link][way];
  const over = used > size;
  const strip = h("div", { class: "strip link", "aria-hidden": "true", "data-over": over });
  strip.append(...boxes(row.bar ?? [], link, way, used, size));
  if (over) strip.append(beyond(used, size));
  return h("div", { class: "link-line" }, h("dt", { text: `${LINKS[link]} ${WAYS[way]}` }), h("dd", {}, strip, h("span", { class: "amount", text: pair(used, size) })));
}

/** A box for each reservation, one for those that are not named here, and what is free. */
function boxes(bar, link, way, used, size) {
  const named = bar.filter((each) => each[way] > 0 && !(link === "network" && each.linkLocal));
  const rest = Math.max(used - named.reduce((sum, each) => sum + each[way], 0), 0);
  const found = named.map((each) => sized(podBox(each, way), each[way]));
  if (rest > 0) found.push(sized(h("span", { class: "box", "data-hue": bar.length ? "none" : "unseen", title: `others: ${rate(rest)}`, text: bar.length ? "others" : "" }), rest));
  if (size > used) found.push(sized(h("span", { class: "box free", title: `${rate(size - used)} free`, text: "free" }), size - used));
  return found;
}

function podBox(each, way) {
  const said = [each.pod, rate(each[way]), each.owner, each.linkLocal && "link-local"].filter(Boolean).join(", ");
  const node = h("span", { class: "box", title: said, text: each.pod.split("/").pop() });
  attribute(node, "data-hue", hue(namespaceOf(each.pod)));
  attribute(node, "data-link-local", each.linkLocal);
  return node;
}

function sized(node, amount) {
  node.style.flexGrow = Number(amount);
  return node;
}

/** What is reserved beyond the capacity, at the end of the bar, which then is as wide as all that is reserved. */
function beyond(used, size) {
  const node = h("span", { class: "beyond" });
  node.style.width = `${(100 * (used - size)) / used}%`;
  return node;
}

/** What is worth knowing of a reservation beside its rates. */
export function remarks(row) {
  return [
    row.linkLocal && "Link-local: all its siblings are on this node, so the network card is not used.",
    row.edited && "Edited since it was bound, without effect; start the pod anew to change what is reserved.",
    row.malformed && "What it asks for cannot be read, so a default counts.",
  ].filter(Boolean);
}

/** Who has reserved most on the nodes that are shown, by namespace; it is also the key to the colours. */
export function legend(list, rows, most = 12) {
  const names = new Set(rows.flatMap((row) => (row.bar ?? []).map((each) => namespaceOf(each.pod))));
  const sorted = [...names].sort();
  for (const name of sorted) hue(name);
  const items = sorted.slice(0, most).map((name) => h("li", {}, h("span", { class: "box swatch", "aria-hidden": "true", "data-hue": hue(name) }), name));
  fill(list, items, sorted.length > most ? h("li", { class: "quiet", text: `and ${sorted.length - most} more` }) : null);
}
