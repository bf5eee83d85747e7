// Charts and tables that the report has too, drawn by its own charts.js. `looks` and `echarts` are global there.
import { make, on } from "/static/api.js";

/* global echarts, looks */
const drawn = new Set();

export const chart = ({ title, kind, data, caption, alternative, columns, rows }) => {
  const plot = make("div", { class: "plot", role: "img", "aria-label": alternative ?? title });
  const legend = make("div", { class: "legend" });
  const parts = [make("figcaption", {}, title), plot, legend];
  let found;
  const button = ({ name, role }) => {
    const one = make("button", { type: "button", "aria-pressed": "true" }, make("i", { class: role }), make("span", {}, name));
    one.addEventListener("click", () => {
      const pressed = one.getAttribute("aria-pressed") !== "true";
      one.setAttribute("aria-pressed", String(pressed));
      found?.dispatchAction({ type: pressed ? "legendSelect" : "legendUnSelect", name });
    });
    return one;
  };
  if (data.series?.length > 1) legend.append(...data.series.map(button));
  if (caption) parts.push(make("p", { class: "reading" }, caption));
  if (rows) parts.push(make("details", {}, make("summary", {}, "Numbers"), table(title, columns, rows)));
  const card = make("figure", { class: "card" }, ...parts);
  requestAnimationFrame(() => {
    if (!plot.isConnected) return;
    looks.readColours();
    found = echarts.init(plot, null, { renderer: "canvas" });
    const one = { found, data, kind, plot };
    found.setOption(looks.draw[kind](data, plot.clientWidth));
    drawn.add(one);
    new ResizeObserver(() => plot.clientWidth && found.resize()).observe(plot);
  });
  return card;
};

export const table = (name, columns, rows) =>
  make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
    make(
      "table",
      {},
      make("thead", {}, make("tr", {}, ...columns.map((column) => make("th", { scope: "col", class: column.startsWith(">") ? "n" : null }, column.replace(">", ""))))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, k) => (k ? make("td", { class: columns[k].startsWith(">") ? "n" : null }, cell) : make("th", { scope: "row" }, cell)))))),
    ),
  );

on("theme", () => {
  if (typeof looks === "undefined") return;
  looks.readColours();
  for (const one of drawn) {
    if (one.plot.isConnected) one.found.setOption(looks.draw[one.kind](one.data, one.plot.clientWidth), { notMerge: true });
    else {
      one.found.dispose();
      drawn.delete(one);
    }
  }
});
