// A picture of offers by price and risk: drawn as SVG, read by keyboard, pointer and screen reader.
//
// A drawing is { points: [{ id, x, y, shape, look, label, words }], cost, summary }: x is dollars for a GPU-hour, y what risk adds
// in percent, and `cost` the expected cost along which a line is drawn. A shape is circle or square, a look first, kept,
// resting or other, each told by size and filling too, not by colour alone.

import { announce, attribute, fill, h, text } from "./dom.js";
import * as format from "./format.js";

const HEIGHT = 300;
const EDGES = { top: 14, right: 16, bottom: 42, left: 58 };
const SPACE = ["http:", "", "www.w3.org", "2000", "svg"].join("/"); // the name of SVG; nothing is fetched there
const WIDE = 4; // prices further apart than so many times are drawn on a logarithmic axis
const SIZES = { first: 9, kept: 6.5, resting: 6.5, other: 4.5 };
const LABELS = [
  ["first", "circle", "first place"],
  ["kept", "circle", "on a rung"],
  ["resting", "circle", "rests or leaves"],
  ["other", "circle", "ranked, on no rung"],
  ["other", "square", "on demand"],
];

function s(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) attribute(node, name, value);
  node.append(...children);
  return node;
}

/** Round numbers between two, about `count` of them. */
export function ticks(from, to, count = 5) {
  const rough = (to - from) / count || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step / 1e6; at += step) found.push(Number(at.toPrecision(6)));
  return found;
}

/** 1, 2 and 5 of each power of ten between two. */
export function logTicks(from, to) {
  const found = [];
  for (let power = Math.floor(Math.log10(from)); power <= Math.log10(to); power += 1) {
    for (const each of [1, 2, 5]) found.push(Number((each * 10 ** power).toPrecision(6)));
  }
  return found.filter((each) => each >= from && each <= to);
}

export class Scatter {
  constructor(title) {
    this._title = title;
    this._svg = s("svg", { class: "scatter", height: HEIGHT, "aria-hidden": "true" });
    this._canvas = h(
      "div",
      {
        class: "plot",
        tabindex: "0",
        role: "group",
        "aria-roledescription": "chart",
        onkeydown: (event) => this._key(event),
        onpointermove: (event) => this._near(event),
        onpointerleave: () => this._mark(-1),
        onblur: () => this._mark(-1),
      },
      this._svg,
    );
    this._readout = h("p", { class: "readout", "aria-hidden": "true" });
    this._legend = h("ul", { class: "legend points", "aria-hidden": "true" });
    this.node = h("figure", { class: "chart" }, h("div", { class: "chart-head" }, this._legend, this._readout), this._canvas);
    this._resized = new ResizeObserver(() => this._draw());
    this._resized.observe(this._canvas);
  }

  close() {
    this._resized.disconnect();
  }

  draw(drawing) {
    const looks = JSON.stringify(drawing);
    if (looks === this._looks) return;
    this._looks = looks;
    this._drawing = drawing;
    attribute(this._canvas, "aria-label", `${this._title}. ${drawing.summary} Arrow keys read the offers, the best first.`);
    const there = LABELS.filter(([look, shape]) => drawing.points.some((each) => shape === "square" ? each.shape === shape : each.look === look));
    fill(this._legend, there.map(([look, shape, words]) => h("li", { class: `point-${look} shape-${shape}`, text: words })));
    this._draw();
  }

  _draw() {
    const width = this._canvas.clientWidth;
    if (!this._drawing || width <= 0) return;
    attribute(this._svg, "width", width);
    this._measure(width);
    const marks = [...this._drawing.points].reverse().map((point) => this._point(point)); // the best on top
    this._cursor = s("circle", { class: "cursor", r: 13, visibility: "hidden" });
    this._svg.replaceChildren(...this._grid(width), ...this._line(), ...marks, ...this._names(width), this._cursor);
    if (this._at >= this._drawing.points.length) this._at = -1;
  }

  _measure(width) {
    const { points } = this._drawing;
    const xs = points.map((each) => each.x);
    const [least, most] = points.length ? [Math.min(...xs), Math.max(...xs)] : [1, 2];
    this._isWide = most > WIDE * least;
    this._from = this._isWide ? least / 1.25 : Math.max(0, least - 0.12 * (most - least || least));
    this._to = this._isWide ? most * 1.25 : most + 0.12 * (most - least || least);
    this._top = Math.max(10, ...points.map((each) => each.y)) * 1.12;
    const scale = this._isWide ? Math.log : (value) => value;
    const [from, to] = [scale(this._from), scale(this._to)];
    this._x = (value) => EDGES.left + ((scale(value) - from) / (to - from)) * (width - EDGES.left - EDGES.right);
    this._y = (value) => EDGES.top + (1 - value / this._top) * (HEIGHT - EDGES.top - EDGES.bottom);
  }

  _grid(width) {
    const [right, bottom] = [width - EDGES.right, HEIGHT - EDGES.bottom];
    const most = Math.max(3, Math.floor(width / 110));
    const alongs = this._isWide ? logTicks(this._from, this._to) : ticks(this._from, this._to, most);
    const every = Math.ceil(alongs.length / (most + 2));
    const nodes = alongs.filter((_, number) => number % every === 0).flatMap((at) => {
      const x = this._x(at);
      return [s("line", { x1: x, x2: x, y1: EDGES.top, y2: bottom }), s("text", { x, y: bottom + 17, "text-anchor": "middle" }, `$${format.number(at)}`)];
    });
    for (const at of ticks(0, this._top, 4)) {
      const y = this._y(at);
      nodes.push(s("line", { x1: EDGES.left, x2: right, y1: y, y2: y }), s("text", { x: EDGES.left - 8, y: y + 4, "text-anchor": "end" }, `${format.number(at)}%`));
    }
    nodes.push(s("text", { x: right, y: bottom + 35, "text-anchor": "end" }, `price of a GPU-hour${this._isWide ? ", logarithmic" : ""}`));
    nodes.push(s("text", { x: EDGES.left + 6, y: EDGES.top + 8, class: "over" }, "what risk adds"));
    return nodes;
  }

  /** Along this line everything costs the same in the end; what lies below it costs less. */
  _line() {
    const { cost } = this._drawing;
    if (!cost) return [];
    const parts = [];
    for (let step = 0; step <= 80; step += 1) {
      const part = step / 80;
      const x = this._isWide ? this._from * (this._to / this._from) ** part : this._from + (this._to - this._from) * part;
      const y = (cost / x - 1) * 100;
      if (x > 0 && y >= 0 && y <= this._top) parts.push(`${this._x(x).toFixed(1)},${this._y(y).toFixed(1)}`);
    }
    return parts.length > 1 ? [s("polyline", { class: "same-cost", points: parts.join(" ") })] : [];
  }

  _point({ x, y, look, shape }) {
    const [at, height, size] = [this._x(x), this._y(y), SIZES[look]];
    const looks = `point point-${look}`;
    if (shape === "square") return s("rect", { class: looks, x: at - size, y: height - size, width: 2 * size, height: 2 * size });
    return s("circle", { class: looks, cx: at, cy: height, r: size });
  }

  /** Names stand above their points: offers of one score lie beside each other. */
  _names(width) {
    const taken = [];
    return this._drawing.points.filter((each) => each.label).flatMap(({ x, y, label, look }) => {
      const at = Math.min(Math.max(this._x(x), EDGES.left + 45), width - EDGES.right - 45);
      const height = this._y(y) - SIZES[look] - 6;
      if (taken.some((each) => Math.abs(each.height - height) < 15 && Math.abs(each.at - at) < 100)) return [];
      taken.push({ at, height });
      return [s("text", { class: "name", x: at, y: height, "text-anchor": "middle" }, label)];
    });
  }

  _mark(number) {
    const point = this._drawing?.points[number];
    this._at = point ? number : -1;
    text(this._readout, point?.words ?? "");
    if (!this._cursor) return;
    attribute(this._cursor, "visibility", point ? "visible" : "hidden");
    if (point) attribute(this._cursor, "cx", this._x(point.x));
    if (point) attribute(this._cursor, "cy", this._y(point.y));
  }

  _near(event) {
    const box = this._svg.getBoundingClientRect();
    const away = (point) => Math.hypot(this._x(point.x) - event.clientX + box.left, this._y(point.y) - event.clientY + box.top);
    const found = (this._drawing?.points ?? []).map((point, number) => [away(point), number]).sort((a, b) => a[0] - b[0])[0];
    this._mark(found && found[0] < 40 ? found[1] : -1);
  }

  _key(event) {
    const last = (this._drawing?.points.length ?? 0) - 1;
    const from = this._at ?? -1;
    const steps = { ArrowRight: from + 1, ArrowDown: from + 1, ArrowLeft: from - 1, ArrowUp: from - 1, Home: 0, End: last };
    if (last < 0 || !(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this._mark(Math.min(Math.max(steps[event.key], 0), last));
    announce(this._drawing.points[this._at].words);
  }
}
