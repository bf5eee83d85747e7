"use strict";
// Puts the charts on the page, switches between light and dark, and makes the table sortable.
(() => {
  const { draw, make, readColours, shows } = looks;
  const charts = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const drawn = [];

  // Legends are buttons, so that they can be reached by keyboard

  const fillLegend = (legend, data, chart) => {
    const key = (className, name) => {
      const item = make("span", "key");
      item.append(make("i", className), make("span", "", name));
      legend.append(item);
    };
    if (data.kind === "map") {
      const edge = shows.number(data.reach);
      legend.append(make("span", "", `\u2212${edge}`), make("span", "scale"), make("span", "", `+${edge} ${data.valueName.replace("value", "").trim()}`));
      return;
    }
    if (data.kind === "bars") {
      if (data.low || data.sampleLow || data.corrected) key("corrected", "payout");
      if (data.sampleLow) key("muted", data.sampleName);
      if (data.low) key("whisker", data.intervalName);
      if (data.corrected) key("diamond", "after correction");
      return;
    }
    if (data.series.length > 1) {
      for (const series of data.series) {
        const button = make("button");
        button.type = "button";
        button.setAttribute("aria-pressed", "true");
        button.append(make("i", series.role), make("span", "", series.name));
        button.addEventListener("click", () => {
          const pressed = button.getAttribute("aria-pressed") !== "true";
          button.setAttribute("aria-pressed", String(pressed));
          chart.dispatchAction({ type: pressed ? "legendSelect" : "legendUnSelect", name: series.name });
        });
        legend.append(button);
      }
    }
    if (data.kind === "curves" && data.reference !== null) key("dashed", data.referenceName);
  };

  const height = (data) => {
    if (data.kind === "bars") return 90 + 30 * Math.max(data.names.length, 2);
    if (data.kind === "curves" && !data.x) return 60 + 48 * Math.max(data.levels.length, 2);
    return 0;
  };

  const start = (plot) => {
    const data = charts[plot.dataset.chart];
    const tall = height(data);
    if (tall) plot.style.height = `${tall}px`;
    const chart = echarts.init(plot, null, { renderer: "canvas" });
    plot.chart = chart; // for the console
    chart.setOption(draw[data.kind](data, plot.clientWidth));
    fillLegend(plot.parentElement.querySelector(".legend"), data, chart);
    drawn.push({ chart, data, plot, width: plot.clientWidth });
  };

  const redraw = () => {
    readColours();
    for (const { chart, data, plot } of drawn) {
      chart.setOption(draw[data.kind](data, plot.clientWidth), { notMerge: true });
      for (const button of plot.parentElement.querySelectorAll('.legend button[aria-pressed="false"]')) {
        chart.dispatchAction({ type: "legendUnSelect", name: button.textContent });
      }
    }
  };

  // Light and dark

  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const nameTheme = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
    redraw();
  });
  system.addEventListener("change", () => {
    nameTheme();
    redraw();
  });
  nameTheme();
  let before;
  addEventListener("beforeprint", () => {
    while (waiting.length) start(waiting.shift());
    before = root.dataset.theme;
    root.dataset.theme = "light";
    redraw();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    redraw();
  });

  // The table of rows

  const table = document.getElementById("row-table");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((element) => ({
    element,
    cells: [...element.cells].map((cell) => cell.textContent),
  }));
  for (const row of rows) row.text = row.cells.join("\n").toLowerCase();

  // Explanations: a button in a row opens one under it, and so does a click anywhere in the row

  const explained = JSON.parse(document.getElementById("explained")?.textContent ?? "{}");
  const numbers = (caption, names, lines, left) => {
    const made = make("table");
    made.append(make("caption", "", caption));
    const head = made.createTHead().insertRow();
    for (const name of names) {
      const heading = make("th", left.includes(name) ? "" : "n", name);
      heading.scope = "col";
      head.append(heading);
    }
    const filled = made.createTBody();
    for (const line of lines) {
      const tr = filled.insertRow();
      line.forEach((text, i) => tr.append(make("td", left.includes(names[i]) ? "" : "n", text)));
    }
    return made;
  };
  const explanation = (said, width, name) => {
    const row = make("tr", "why");
    const cell = row.insertCell();
    cell.colSpan = width;
    const box = make("div");
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", name);
    box.append(make("p", "sentence", said.sentence), make("p", "", said.sums));
    const tables = make("div", "tables");
    if (said.points.length) {
      const names = ["point", "label", "value there", "distance", "rank"];
      tables.append(numbers("Validation points on which it gains and loses most", names, said.points, ["point", "label"]));
    }
    if (said.neighbors.length) tables.append(numbers("Its nearest training rows", ["row", "label", "distance"], said.neighbors, ["row", "label"]));
    box.append(tables);
    cell.append(box);
    return row;
  };
  for (const row of rows) {
    const said = explained[row.element.dataset.why];
    if (!said) continue;
    const [, cell] = row.element.cells; // the id
    const button = make("button", "", cell.textContent);
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.title = "Where its value comes from";
    cell.replaceChildren(button);
    row.toggle = () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      if (!row.why) row.why = explanation(said, row.cells.length, `Where the value of row ${row.cells[1]} comes from`);
      if (open) row.element.after(row.why);
      else row.why.remove();
    };
    row.element.addEventListener("click", () => {
      if (!String(getSelection())) row.toggle(); // selecting text is not a click
    });
  }
  const withWhy = (row) => (row.why && row.why.isConnected ? [row.element, row.why] : [row.element]);
  const headings = [...table.tHead.rows[0].cells];
  const numeric = headings.map((heading) => heading.classList.contains("n"));
  for (const { element } of rows) numeric.forEach((is, i) => is && element.cells[i].classList.add("n"));

  const sortBy = (column) => {
    const up = headings[column].getAttribute("aria-sort") !== "ascending";
    headings.forEach((heading) => heading.removeAttribute("aria-sort"));
    headings[column].setAttribute("aria-sort", up ? "ascending" : "descending");
    const text = new Intl.Collator("en", { numeric: true });
    const figure = (shown) => Number(shown.replaceAll(",", "").replace("∞", "Infinity"));
    const compare = (a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      if (x === "" || y === "") return (x === "") - (y === ""); // missing entries come last in both orders
      const order = numeric[column] ? figure(x) - figure(y) : text.compare(x, y);
      return up ? order : -order;
    };
    rows.sort(compare);
    body.append(...rows.flatMap(withWhy));
  };
  headings.forEach((heading, column) => {
    const button = make("button", "", heading.textContent);
    button.type = "button";
    button.addEventListener("click", () => sortBy(column));
    heading.replaceChildren(button);
  });
  headings[0].setAttribute("aria-sort", "ascending");

  const search = document.getElementById("search");
  const end = document.getElementById("end");
  const shown = document.getElementById("shown");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let n = 0;
    for (const row of rows) {
      const { element, text } = row;
      const fits = (!end.value || element.classList.contains(end.value)) && words.every((word) => text.includes(word));
      for (const shownOrNot of withWhy(row)) shownOrNot.hidden = !fits;
      n += fits;
    }
    shown.textContent = n === rows.length ? `${shows.count(n)} rows` : `${shows.count(n)} of ${shows.count(rows.length)} rows`;
  };
  search.addEventListener("input", filter);
  end.addEventListener("change", filter);
  document.getElementById("controls").hidden = false;
  filter();

  // Go

  readColours();
  const waiting = [...document.querySelectorAll("[data-chart]")];
  while (waiting.length && waiting[0].getBoundingClientRect().top < innerHeight) start(waiting.shift());
  // The page grows while charts are drawn; redraw only if the width changes.
  const watch = new ResizeObserver(() => {
    for (const one of drawn) {
      if (one.plot.clientWidth === one.width) continue;
      one.width = one.plot.clientWidth;
      one.chart.resize();
    }
  });
  watch.observe(document.querySelector("main"));
  root.dataset.ready = String(Math.round(performance.now()));
  // Charts further down are drawn one by one, so that the page stays responsive.
  const next = () => {
    if (waiting.length) {
      start(waiting.shift());
      setTimeout(next);
    } else {
      root.dataset.drawn = String(Math.round(performance.now()));
    }
  };
  setTimeout(next);
})();
