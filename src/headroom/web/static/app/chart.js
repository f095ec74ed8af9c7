// A line chart over time: drawn by uPlot, readable by keyboard, screen reader and as a table of its numbers.
//
// A drawing is { t: [seconds], lines: [{ label, values, look, stepped }], marks: [{ t, kind, label }], room: marks that the
// axis leaves room for, unit, summary };
// a look is used, ahead, endless or limit, each with colours in the style sheet and a stroke of its own.

import { announce, fill, h, show, text } from "./dom.js";
import * as format from "./format.js";
import { PlainTable } from "./table.js";

const HEIGHT = 280;
const MOST_ROWS = 200;
const AXIS = 56;
const LETTER = 7; // pixels, at the font of the marks
const LOOKS = {
  used: { colour: "--chart-used", width: 2, fill: "--chart-fill" },
  ahead: { colour: "--chart-used", width: 2, dash: [6, 5] },
  endless: { colour: "--chart-mark", width: 1, dash: [2, 5] },
  limit: { colour: "--chart-limit", width: 1.5, dash: [2, 3] },
};

/** The colour that a variable of the style sheet has in the theme of this moment. */
function colour(name) {
  const probe = h("span", { class: `probe probe${name}` });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function palette() {
  const names = ["--chart-used", "--chart-fill", "--chart-limit", "--chart-grid", "--chart-text", "--chart-mark"];
  return Object.fromEntries(names.map((name) => [name, colour(name)]));
}

export class Chart {
  constructor(title) {
    this._title = title;
    this._colours = palette();
    this._canvas = h("div", {
      class: "plot",
      tabindex: "0",
      role: "group",
      "aria-roledescription": "chart",
      onkeydown: (event) => this._key(event),
      onblur: () => this._plot?.setCursor({ left: -10, top: -10 }),
    });
    this._readout = h("p", { class: "readout", "aria-hidden": "true" });
    this._legend = h("ul", { class: "legend", "aria-hidden": "true" });
    this._missing = h("p", { class: "quiet", text: "The charting library is not installed, so only the numbers are shown.", hidden: true });
    this._numbers = h("details", { class: "numbers", ontoggle: () => this._table() }, h("summary", { text: "Show the numbers" }));
    this.node = h("figure", { class: "chart" }, h("div", { class: "chart-head" }, this._legend, this._readout), this._canvas, this._missing, this._numbers);
    this._resized = new ResizeObserver(() => this._fit());
    this._resized.observe(this._canvas);
    this._themed = () => this._recolour();
    document.addEventListener("themechange", this._themed);
  }

  close() {
    this._resized.disconnect();
    document.removeEventListener("themechange", this._themed);
    this._plot?.destroy();
  }

  draw(drawing) {
    const shape = JSON.stringify([drawing.unit, drawing.lines.map((line) => [line.label, line.look])]);
    this._drawing = drawing;
    this._canvas.setAttribute("aria-label", `${this._title}. ${drawing.summary} Arrow keys read the values.`);
    fill(this._legend, drawing.lines.map((line) => h("li", { class: `look-${line.look}`, text: line.label })));
    if (!window.uPlot) {
      show(this._canvas, false);
      show(this._missing, true);
    } else if (this._plot && shape === this._shape) {
      this._plot.setData(this._data());
    } else {
      this._shape = shape;
      this._make();
    }
    this._table();
  }

  _data() {
    return [this._drawing.t, ...this._drawing.lines.map((line) => line.values)];
  }

  _make() {
    this._plot?.destroy();
    const axis = {
      stroke: () => this._colours["--chart-text"],
      font: "12px system-ui, sans-serif",
      grid: { stroke: () => this._colours["--chart-grid"], width: 1 },
      ticks: { stroke: () => this._colours["--chart-grid"], width: 1, size: 4 },
    };
    const options = {
      width: this._canvas.clientWidth || 600,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: true, range: (_plot, from, to) => this._range(from, to) }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [{ ...axis, size: 34, space: 70, values: TIMES }, { ...axis, size: AXIS, values: (_plot, ticks) => ticks.map((tick) => this._tick(tick)) }],
      series: [{}, ...this._drawing.lines.map((line) => this._line(line))],
      hooks: { draw: [(plot) => this._marks(plot)], setCursor: [(plot) => this._say(plot.cursor.idx)] },
    };
    this._plot = new window.uPlot(options, this._data(), this._canvas);
  }

  _line({ label, look, stepped }) {
    const { colour: name, width, dash, fill: filled } = LOOKS[look];
    return {
      label,
      width,
      dash,
      stroke: () => this._colours[name],
      fill: filled ? () => this._colours[filled] : undefined,
      paths: stepped ? window.uPlot.paths.stepped({ align: 1 }) : undefined,
      points: { show: false },
      spanGaps: false,
    };
  }

  _tick(value) {
    return `${this._drawing.unit === "dollars" ? "$" : ""}${format.number(value)}`;
  }

  _range(from, to) {
    return [from, roomFor(this._drawing.room ?? [], from, to, (this._canvas.clientWidth || 600) - AXIS)];
  }

  /** Vertical lines with a word: now, when it is over quota, and back under quota. */
  _marks(plot) {
    const { ctx, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.fillStyle = ctx.strokeStyle = this._colours["--chart-mark"];
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    for (const [row, mark] of (this._drawing.marks ?? []).entries()) {
      const x = plot.valToPos(mark.t, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const isLeft = mark.kind === "now" || x + ctx.measureText(mark.label).width + 6 * ratio > bbox.left + bbox.width;
      ctx.textAlign = isLeft ? "right" : "left";
      ctx.fillText(mark.label, x + (isLeft ? -5 : 5) * ratio, bbox.top + bbox.height - (7 + 15 * row) * ratio);
    }
    ctx.restore();
  }

  /** The values at one point, in words. */
  _words(index) {
    const { t, lines, unit } = this._drawing;
    const values = lines
      .filter((line) => line.values[index] !== null && line.values[index] !== undefined)
      .map((line) => `${line.label} ${format.amount(line.values[index], unit)}`);
    return `${format.moment(t[index] * 1000)}: ${values.join(", ")}${unit === "dollars" ? "" : ` ${unit}`}`;
  }

  _say(index) {
    text(this._readout, index === null || index === undefined ? "" : this._words(index));
  }

  _key(event) {
    const last = this._drawing.t.length - 1;
    const leap = Math.max(1, Math.round(last / 12));
    const from = this._plot?.cursor.idx ?? this._at ?? last;
    const steps = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - leap, PageDown: from + leap, Home: 0, End: last };
    if (!this._plot || last < 0 || !(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this._at = Math.min(Math.max(steps[event.key], 0), last);
    const value = this._drawing.lines.map((line) => line.values[this._at]).find((found) => found !== null && found !== undefined);
    this._plot.setCursor({ left: this._plot.valToPos(this._drawing.t[this._at], "x"), top: this._plot.valToPos(value ?? 0, "y") });
    announce(this._words(this._at));
  }

  _fit() {
    const width = this._canvas.clientWidth;
    if (this._plot && width > 0 && width !== this._plot.width) this._plot.setSize({ width, height: HEIGHT });
  }

  _recolour() {
    this._colours = palette();
    this._plot?.redraw(false);
  }

  /** Made only while it is open: a day of numbers is long. Every so many points, so that it stays readable. */
  _table() {
    if (!this._numbers.open || !this._drawing) return;
    const { t, lines, unit } = this._drawing;
    const every = Math.ceil(t.length / MOST_ROWS);
    const kept = t.map((_moment, index) => index).filter((index) => index % every === 0 || index === t.length - 1);
    const heads = ["Time", ...lines.map((line) => ({ title: line.label, figure: true }))];
    const plain = new PlainTable(`${this._title}, in ${unit}`, heads, { away: false });
    const value = (line, index) => (line.values[index] === null || line.values[index] === undefined ? "" : format.amount(line.values[index], unit));
    plain.body.append(...kept.map((index) => plain.row([format.moment(t[index] * 1000), ...lines.map((line) => value(line, index))])));
    const table = plain.node;
    const scroller = h("div", { class: "wide tall", tabindex: "0", role: "region", "aria-label": `${this._title}: the numbers` }, table);
    const shown = this._numbers.querySelector(".wide");
    if (!shown) this._numbers.append(scroller);
    else if (!shown.isEqualNode(scroller)) shown.replaceChildren(table);
  }
}

/**
 * Where the time axis ends: later than what is drawn, where a mark's word has no room at its right and would cross the line
 * of another mark at its left.
 */
export function roomFor(marks, from, to, width) {
  const needed = marks.map((mark) => {
    const part = Math.min((mark.label.length * LETTER + 12) / width, 0.5);
    const length = part * (to - from);
    const crosses = marks.some((other) => other !== mark && other.t <= mark.t && other.t > mark.t - length);
    return mark.kind !== "now" && crosses && mark.t + length > to ? (mark.t - part * from) / (1 - part) : to;
  });
  return Math.max(to, ...needed);
}

/** Times on the axis: the day where it begins, hours and minutes otherwise. */
function TIMES(_plot, ticks) {
  const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric" });
  const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  return ticks.map((tick) => {
    const at = new Date(tick * 1000);
    return at.getHours() || at.getMinutes() ? time.format(at) : day.format(at);
  });
}
