// Building the page out of nodes, never out of text that could be markup, and changing only what is different.

/** An element: attributes by name, `text` for its text, `on...` for listeners; what is undefined or false is left out. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else attribute(node, name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function attribute(node, name, value) {
  if (value === undefined || value === null || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const wanted = value === true ? "" : String(value);
  if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
}

export function text(node, value) {
  const wanted = String(value ?? "");
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function show(node, wanted) {
  if (node.hidden === Boolean(wanted)) node.hidden = !wanted;
}

const filled = new WeakMap();

/** Replaces the children of a small part of the page, and leaves it untouched where they would be the same as last time. */
export function fill(node, ...children) {
  const fresh = h("div", {}, ...children);
  const looks = new XMLSerializer().serializeToString(fresh);
  if (filled.get(node) === looks) return;
  filled.set(node, looks);
  const focused = node.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  node.replaceChildren(...fresh.childNodes);
  // Whoever was on a link is on the same link again.
  if (focused) [...node.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

const INSTANT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;

/** A sentence of the operator; the instants in it become times in the reader's zone. */
export function prose(node, sentence) {
  const parts = String(sentence ?? "").split(INSTANT);
  fill(node, parts.map((part, number) => (number % 2 ? time(part, "moment") : part)));
}

const lists = new WeakMap();

/**
 * Makes the children of `parent` follow `items`. `make(item)` gives a node once, `update(node, item)` is called when the item
 * is another object than before. A node that stays is not touched, so focus, selection and open details stay too.
 */
export function keyed(parent, items, keyOf, make, update) {
  const before = lists.get(parent) ?? new Map();
  const after = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  for (const item of items) {
    const key = keyOf(item);
    const row = before.get(key) ?? { node: make(item), item: undefined };
    if (row.item !== item) {
      row.item = item;
      update(row.node, item);
    }
    after.set(key, row);
  }
  for (const [key, row] of before) if (!after.has(key)) row.node.remove();
  arrange(parent, after);
  lists.set(parent, after);
  if (focused && document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

function arrange(parent, rows) {
  let place = parent.firstChild;
  for (const { node } of rows.values()) {
    if (node === place) {
      place = place.nextSibling;
      continue;
    }
    // When one row left its place, its followers are right already: skipping it moves one node instead of all.
    if (place?.nextSibling === node && node.isConnected && parent.contains(node)) {
      const skipped = place;
      place = node.nextSibling;
      parent.insertBefore(skipped, null);
      continue;
    }
    parent.insertBefore(node, place);
  }
}

/** A time that clock.js writes and keeps right; `form` is distance ("5 min ago"), ahead ("in 5 min"), lasting ("5 min"), moment or clock. */
export function time(value, form = "distance") {
  return h("time", { datetime: value, "data-form": form });
}

let polite = null;

/** Tells screen readers, once, what matters and cannot be seen to change by them. */
export function announce(message) {
  polite ??= document.getElementById("announcements");
  polite.textContent = message;
}
