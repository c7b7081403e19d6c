"use strict";
// Adds to the page what needs code: sorting, filtering, and the matrix of rules and namespaces. Text is set as text only.
(() => {
  const ROWS = 40, COLUMNS = 25; // of the matrix: a part of it is in the page at a time
  const PROBLEMS = ["critical", "warning"];
  const data = JSON.parse(document.getElementById("data").textContent);
  const filter = { text: "", state: "" };

  // Returns an element with properties, attributes (aria-..., scope, ...) and children.
  function make(tag, given = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(given)) {
      if (name in made) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  const text = (number) => number.toLocaleString("en");
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

  // ---- filter
  const nothingMatches = () => make("p", { className: "quiet" }, "Nothing matches the filter.");
  const tables = [...document.querySelectorAll("main section:not(#runs) table")].map((table) => ({
    table,
    none: nothingMatches(),
    rows: [...table.tBodies[0].rows].map((row) => ({
      row,
      text: row.textContent.toLowerCase(),
      states: row.dataset.states.split(" "),
      level: row.dataset.level,
    })),
  }));
  const count = make("p", { role: "status" });

  function fits(states, levels) {
    if (!filter.state) return true;
    return filter.state === "problems" ? levels.some((level) => PROBLEMS.includes(level)) : states.includes(filter.state);
  }

  function applyFilter() {
    let shown = 0, all = 0;
    for (const { table, none, rows } of tables) {
      for (const each of rows) each.row.hidden = !(each.text.includes(filter.text) && fits(each.states, [each.level]));
      const found = rows.filter(({ row }) => !row.hidden).length;
      table.hidden = !found;
      if (found) none.remove();
      else table.after(none);
      shown += found;
      all += rows.length;
    }
    matrix.first();
    const active = filter.text || filter.state;
    count.textContent = active ? `${text(shown)} of ${text(all)} rows${matrix.summary()}` : "";
  }

  function addFilter() {
    const states = new Set(tables.flatMap(({ rows }) => rows.flatMap(({ states }) => states)));
    data.codes.slice(1).forEach(({ word }) => states.add(word));
    states.delete("");
    const options = [["", "any"], ["problems", "problems only"], ...[...states].sort().map((state) => [state, state.replaceAll("-", " ")])];
    const select = make("select", {}, ...options.map(([value, label]) => make("option", { value }, label)));
    const input = make("input", { type: "search", spellcheck: false, autocomplete: "off", placeholder: "name, namespace, reason" });
    input.addEventListener("input", () => { filter.text = input.value.trim().toLowerCase(); applyFilter(); });
    select.addEventListener("change", () => { filter.state = select.value; applyFilter(); });
    const bar = document.getElementById("filter");
    bar.setAttribute("role", "search");
    bar.append(make("label", {}, "Filter ", input), make("label", {}, "State ", select), count);
  }

  // ---- sort
  function key(row, column) {
    const cell = row.cells[column];
    const value = cell.dataset.sort ?? cell.textContent;
    return value.trim() !== "" && !isNaN(value) ? Number(value) : value;
  }

  function sort(table, header) {
    const descending = header.getAttribute("aria-sort") === "ascending";
    for (const each of header.parentElement.cells) each.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const sign = descending ? -1 : 1;
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, header.cellIndex), row]);
    table.tBodies[0].append(...rows.sort(([a], [b]) => sign * compare(a, b)).map(([, row]) => row));
  }

  function addSort(table) {
    for (const header of table.tHead.rows[0].cells) {
      const button = make("button", { type: "button" }, ...header.childNodes);
      button.addEventListener("click", () => sort(table, header));
      header.append(button);
      header.setAttribute("aria-sort", "none");
    }
  }

  // ---- matrix
  const matrix = (() => {
    const { namespaces, rules, codes, cells } = data;
    const place = document.getElementById("matrix");
    const view = { rows: [], columns: [], row: 0, column: 0, by: "problems", descending: false };
    // The worst rank, then how many have it: orders namespaces by their rules, and rules by their namespaces.
    function badness(found) {
      const ranks = found.map((code) => codes[code].rank);
      const worst = ranks.reduce((a, b) => Math.min(a, b), 9);
      return worst * 1e9 - ranks.filter((rank) => rank === worst).length;
    }
    const order = (items, value) => items.map((item) => [value(item), item]).sort(([a], [b]) => compare(a, b)).map(([, item]) => item);
    const badnessOf = namespaces.map((_, row) => badness(cells.map((column) => column[row])));
    const problemsOf = namespaces.map((_, row) => cells.filter((column) => PROBLEMS.includes(codes[column[row]].level)).length);

    function selectRows() {
      const named = namespaces.map((_, row) => row).filter((row) => namespaces[row].toLowerCase().includes(filter.text));
      const columns = rules.map((_, column) => column).filter((column) => rules[column].toLowerCase().includes(filter.text));
      const byNamespace = named.length > 0;
      view.columns = byNamespace ? rules.map((_, column) => column) : columns;
      const rows = byNamespace ? named : columns.length ? namespaces.map((_, row) => row) : [];
      view.rows = rows.filter((row) => {
        const found = view.columns.map((column) => codes[cells[column][row]]);
        return fits(found.map(({ word }) => word), found.map(({ level }) => level));
      });
      const codesOf = (column) => view.rows.map((row) => cells[column][row]);
      const fitting = (column) => codesOf(column).filter((code) => fits([codes[code].word], [codes[code].level])).length;
      view.columns = order(view.columns, filter.state ? (column) => -fitting(column) : (column) => badness(codesOf(column)));
    }

    function sortRows() {
      const value = {
        problems: (row) => badnessOf[row],
        namespace: (row) => namespaces[row],
      }[view.by] ?? ((row) => codes[cells[view.by][row]].rank);
      const sign = view.descending ? -1 : 1;
      view.rows.sort((a, b) => sign * compare(value(a), value(b)) || compare(namespaces[a], namespaces[b]));
    }

    function first() {
      if (!rules.length || !namespaces.length) return place.replaceChildren();
      selectRows();
      sortRows();
      view.row = view.column = 0;
      render();
    }

    function sortBy(by) {
      view.descending = view.by === by && !view.descending;
      view.by = by;
      sortRows();
      view.row = 0;
      render();
    }

    function header(label, by) {
      // The worst rank is the lowest number, but the most problems.
      const falling = (by === "problems") !== view.descending;
      const sorted = view.by !== by ? "none" : falling ? "descending" : "ascending";
      const button = make("button", { type: "button", title: label, id: `by-${by}` }, label);
      button.addEventListener("click", () => sortBy(by));
      return make("th", { scope: "col", "aria-sort": sorted }, button);
    }

    function cell(rule, row) {
      const { word, symbol, level } = codes[cells[rule][row]];
      const made = make("td", { className: level, title: `${rules[rule]} in ${namespaces[row]}: ${word}` });
      made.append(make("span", { "aria-hidden": "true" }, symbol), make("span", { className: "hidden" }, word));
      return made;
    }

    function pager(name, of, at, size) {
      const end = Math.min(view[at] + size, of);
      const move = (by) => () => { view[at] += by; render(); };
      const button = (label, by, disabled) => {
        const made = make("button", { type: "button", disabled, id: `${at}-${label}`, "aria-label": `${label} ${name}` }, label);
        made.addEventListener("click", move(by));
        return made;
      };
      if (of <= size) return make("div", { className: "pager" }, `${text(of)} ${name}`);
      const range = make("span", {}, `${name} ${text(view[at] + 1)}–${text(end)} of ${text(of)}`);
      return make("div", { className: "pager" }, range, button("previous", -size, view[at] === 0), button("next", size, end >= of));
    }

    function legend() {
      const counts = new Array(codes.length).fill(0);
      cells.forEach((column) => column.forEach((code) => { counts[code] += 1; }));
      const items = codes.map(({ word, symbol, level }, code) => make("li", { hidden: !counts[code] },
        make("span", { className: `badge ${level}` }, `${symbol} ${word}`), ` ${text(counts[code])}`));
      items.push(items.shift()); // no target
      return make("ul", { className: "legend", "aria-label": "Codes in the matrix, with the number of places" }, ...items);
    }

    function render() {
      const focused = document.activeElement?.id;
      const columns = view.columns.slice(view.column, view.column + COLUMNS);
      const rows = view.rows.slice(view.row, view.row + ROWS);
      const head = make("tr", {}, header("Namespace", "namespace"), header("Problems", "problems"), ...columns.map((rule) => header(rules[rule], rule)));
      const body = rows.map((row) => make("tr", {}, make("th", { scope: "row", title: namespaces[row] }, namespaces[row]),
        make("td", { className: "number" }, text(problemsOf[row])), ...columns.map((rule) => cell(rule, row))));
      const table = make("table", { className: "matrix" }, make("caption", { className: "hidden" }, "State of copies by namespace and rule"), make("thead", {}, head), make("tbody", {}, ...body));
      const scroll = make("div", { className: "scroll", role: "region", tabIndex: 0, "aria-label": "Matrix of rules and namespaces" }, table);
      const pagers = make("div", { className: "pagers" }, pager("namespaces", view.rows.length, "row", ROWS), pager("rules", view.columns.length, "column", COLUMNS));
      if (!rows.length) return place.replaceChildren(make("h3", {}, "Rules and namespaces"), data.note, nothingMatches());
      place.replaceChildren(make("h3", {}, "Rules and namespaces"), data.note, legend(), pagers, scroll);
      const again = focused && document.getElementById(focused);
      if (again) (again.disabled ? again.parentElement.querySelector("button:enabled") : again)?.focus();
    }

    const summary = () => (rules.length && namespaces.length ? `, ${text(view.rows.length)} of ${text(namespaces.length)} namespaces` : "");
    return { first, summary };
  })();

  document.documentElement.classList.add("scripts");
  document.querySelectorAll("main table").forEach(addSort);
  addFilter();
  applyFilter();
})();
