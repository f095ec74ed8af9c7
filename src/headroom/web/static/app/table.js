// A table that people sort and filter, and that stays theirs while the numbers in it move.

import { attribute, h, keyed, show, text } from "./dom.js";

const SCREENFUL = 60;
let hasBegun = false; // Later tables are made whole, so that going back finds the same place.

/**
 * A column is { key, title, sort(row), update(cell, row), numeric?, lead?, shown(rows)? }; the lead column names the row.
 * `restore` is { q, sort } of the address; `kept({ q, sort })` is told when the reader changes them.
 */
export class Table {
  constructor({ caption, columns, words, empty, restore = {}, kept = () => {}, sort, filter = true, what = "rows" }) {
    Object.assign(this, { _columns: columns, _words: words, _kept: kept, _what: what });
    this._first = sort;
    this._sort = restore.sort || sort;
    this._query = restore.q || "";
    this._rows = [];
    this._status = h("p", { class: "quiet", role: "status" });
    this._body = h("tbody", { role: "rowgroup" });
    this._heads = new Map(columns.map((column) => [column.key, this._head(column)]));
    this._empty = h("p", { class: "empty" }, empty);
    const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...this._heads.values()));
    const table = h("table", { class: "cards", role: "table" }, h("caption", { class: "away", text: caption }), head, this._body);
    this._wide = h("div", { class: "wide", role: "region", "aria-label": caption, tabindex: "0" }, table);
    this._tools = h("div", { class: "tools" }, filter ? this._filter(caption) : null, this._sorter(), this._status);
    this.node = h("div", {}, this._tools, this._wide, this._empty);
  }

  rows(rows) {
    this._rows = rows;
    this._draw();
  }

  _head(column) {
    const button = h("button", { type: "button", onclick: () => this._turn(column) }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }));
    return h("th", { role: "columnheader", scope: "col", class: column.numeric ? "figure" : undefined }, column.sort ? button : column.title);
  }

  _filter(caption) {
    this._search = h("input", {
      type: "search",
      placeholder: "Filter",
      "aria-label": `Filter ${caption}`,
      value: this._query,
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => {
        this._query = this._search.value;
        this._draw();
        this._tell();
      },
    });
    return this._search;
  }

  /** Phones show cards without a head, so the order is chosen here. */
  _sorter() {
    const choices = this._columns.filter((column) => column.sort).map((column) => h("option", { value: column.key, text: column.title }));
    this._choice = h("select", { onchange: () => this._turn(this._columns.find((column) => column.key === this._choice.value)) }, choices);
    return h("label", { class: "sorter" }, "Sort by ", this._choice);
  }

  _turn(column) {
    const falling = column.numeric ? `-${column.key}` : column.key;
    const rising = column.numeric ? column.key : `-${column.key}`;
    this._sort = this._sort === falling ? rising : falling;
    this._draw();
    this._tell();
  }

  _tell() {
    this._kept({ q: this._query, sort: this._sort === this._first ? "" : this._sort });
  }

  _matching() {
    const wanted = this._query.toLowerCase().split(/\s+/).filter(Boolean);
    return this._rows.filter((row) => {
      const has = this._words(row).toLowerCase();
      return wanted.every((word) => has.includes(word));
    });
  }

  /** Of a long list only what a screen holds is made at first; the rest follows once that can be seen. */
  _begin(rows) {
    if (hasBegun || rows.length <= SCREENFUL) return rows;
    requestAnimationFrame(() =>
      setTimeout(() => {
        hasBegun = true;
        this._draw();
      }),
    );
    return rows.slice(0, SCREENFUL);
  }

  _draw() {
    this._hide();
    const key = this._sort.replace(/^-/, "");
    const sign = this._sort.startsWith("-") ? -1 : 1;
    const column = this._columns.find((each) => each.key === key && each.sort) ?? this._columns[0];
    const shown = this._matching()
      .map((row) => [column.sort(row), row])
      .sort(([a, one], [b, other]) => compare(a, b, sign) || compare(one.id, other.id))
      .map(([, row]) => row);
    keyed(this._body, this._begin(shown), (row) => row.id, () => this._make(), (node, row) => this._update(node, row));
    for (const [name, head] of this._heads) attribute(head, "aria-sort", name !== key ? undefined : sign < 0 ? "descending" : "ascending");
    if (this._choice.value !== key) this._choice.value = key;
    const all = this._rows.length;
    const what = all === 1 ? this._what.replace(/s$/, "") : this._what;
    text(this._status, this._query && all ? `${shown.length} of ${all} ${what} match` : `${all} ${what}`);
    show(this._tools, all > 0);
    show(this._wide, all > 0);
    show(this._empty, all === 0);
  }

  /** A column that says nothing for any row is not shown. */
  _hide() {
    this._columns.forEach((column, number) => {
      const hidden = Boolean(column.shown) && !column.shown(this._rows);
      if (hidden === Boolean(column.hidden)) return;
      column.hidden = hidden;
      this._heads.get(column.key).hidden = hidden;
      for (const row of this._body.children) row.children[number].hidden = hidden;
    });
  }

  _make() {
    const cells = this._columns.map((column) =>
      column.lead
        ? h("th", { role: "rowheader", scope: "row", "data-title": column.title })
        : h("td", { role: "cell", hidden: column.hidden, class: column.numeric ? "figure" : undefined, "data-title": column.title }),
    );
    return h("tr", { role: "row" }, cells);
  }

  _update(node, row) {
    this._columns.forEach((column, number) => column.update(node.children[number], row));
  }
}

/**
 * A small table without tools, which becomes cards on a phone too: its cells say which column they are, and roles keep it a
 * table for screen readers. A head is a title, or { title, figure: true } for a column of numbers.
 */
export class PlainTable {
  constructor(caption, heads, { away = true } = {}) {
    this._heads = heads.map((head) => (typeof head === "string" ? { title: head } : head));
    this.body = h("tbody", { role: "rowgroup" });
    const titles = this._heads.map(({ title, figure }) => h("th", { role: "columnheader", scope: "col", class: figure ? "figure" : undefined, text: title }));
    const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, titles));
    this.node = h("table", { class: "plain cards", role: "table" }, h("caption", { class: away ? "away" : undefined, text: caption }), head, this.body);
  }

  /** A row; its first cell names it. */
  row(cells = this._heads.map(() => "")) {
    const [first, ...others] = cells;
    const columns = this._heads.slice(1);
    return h(
      "tr",
      { role: "row" },
      h("th", { role: "rowheader", scope: "row" }, first),
      others.map((cell, number) => h("td", { role: "cell", class: columns[number].figure ? "figure" : undefined, "data-title": columns[number].title }, cell)),
    );
  }
}

/** What is unknown comes last in either direction. */
function compare(a, b, sign = 1) {
  if (a === b) return 0;
  if (a === undefined) return 1;
  if (b === undefined) return -1;
  return a < b ? -sign : sign;
}
