// The last hours of machines as coloured bars, one line each. Bars are placed once, in parts of the hours that are shown; as
// time passes, one number moves them all.

import { fill, h, text } from "./dom.js";
import * as format from "./format.js";
import { MACHINES } from "./parts.js";

export const HOURS = 6; // As many as the server tells of.
const LENGTH = HOURS * 3600;
const STEP = 1 / 800; // A part of the width that can hardly be seen.
const END = 100; // So many widths further everything still goes on as it is.

export class Past {
  constructor() {
    this.legend = h("ul", { class: "legend states", "aria-label": "What the colours mean" });
    fill(this.legend, Object.entries(MACHINES).map(([state, [words]]) => h("li", {}, h("span", { class: `swatch past-${state}`, "aria-hidden": "true" }), words)), h("li", {}, h("span", { class: "swatch past-none", "aria-hidden": "true" }), "No record"));
  }

  /** Tells what time it is: the bars below `node` move with it. */
  move(node, now) {
    this._base ??= now / 1000;
    const shift = (now / 1000 - this._base) / LENGTH;
    if (this._shift !== undefined && Math.abs(shift - this._shift) < STEP) return;
    this._shift = shift;
    node.style.setProperty("--past-shift", `${-100 * shift}%`);
  }

  draw(cell, { id, turns }) {
    if (!cell.firstChild) cell.append(h("div", { class: "past", role: "img" }, h("div", { class: "past-track" })), h("p", { class: "quiet" }));
    const [strip, none] = cell.children;
    const known = turns ?? [];
    strip.hidden = !known.length;
    text(none, known.length ? "" : "no record");
    none.hidden = known.length > 0;
    strip.setAttribute("aria-label", `${id}: ${inWords(known)}`);
    fill(strip.firstChild, known.length ? this._before(known[0][0]) : null, known.map((turn, number) => this._bar(turn, known[number + 1])));
  }

  /** What is not in the record looks like nothing that a machine does. */
  _before(begin) {
    const bar = h("span", { class: "past-none", title: "no record" });
    bar.style.left = `${-100 * END}%`;
    bar.style.width = `${100 * ((begin - this._base) / LENGTH + 1 + END)}%`;
    return bar;
  }

  _bar([begin, state], next) {
    const from = (begin - this._base) / LENGTH + 1;
    const to = next ? (next[0] - this._base) / LENGTH + 1 : from + END;
    const until = next ? `until ${format.moment(next[0] * 1000)} (${format.span((next[0] - begin) * 1000)})` : "and still";
    const bar = h("span", { class: `past-bar past-${state}`, title: `${word(state)} from ${format.moment(begin * 1000)} ${until}` });
    bar.style.left = `${100 * from}%`;
    bar.style.width = `${100 * (to - from)}%`;
    return bar;
  }
}

function word(state) {
  return MACHINES[state]?.[0] ?? state;
}

/** The newest first, as one would tell it. */
function inWords(turns) {
  if (!turns.length) return "nothing is known of its last hours";
  const said = turns.map(([begin, state]) => `${word(state)} since ${format.moment(begin * 1000)}`);
  return said.reverse().join(", before that ");
}
