"use strict";
// Draws the charts and makes the table sortable. Text from the data reaches the page as text only: as textContent, or
// painted on a canvas. Never as HTML.
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const drawn = [];
  let colours = {};

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // Numbers

  const plain = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const cents = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const minus = (text) => text.replace("-", "\u2212");
  const shows = {
    number: (x) => minus(Math.abs(x) >= 1000 ? whole.format(x) : plain.format(x)),
    fixed: (x) => minus(x.toFixed(2)),
    count: (x) => whole.format(x),
    percent: (x) => `${minus(plain.format(100 * x))}%`,
    money: (x) => minus(cents.format(x)),
  };
  shows.size = shows.number;
  const ticks = {
    number: (x) => minus(plain.format(Math.abs(x) < 1e-12 ? 0 : x)),
    fixed: (x) => minus(plain.format(Math.abs(x) < 1e-12 ? 0 : x)),
    count: (x) => (x >= 1e6 ? `${plain.format(x / 1e6)}M` : whole.format(x)),
    percent: (x) => `${minus(plain.format(100 * x))}%`,
    money: (x) => (Math.abs(x) >= 1e6 ? `${minus(plain.format(x / 1e6))}M` : minus(whole.format(x))),
  };
  ticks.size = ticks.number;

  // What all charts share

  const readColours = () => {
    const style = getComputedStyle(root);
    const names = ["surface", "ink", "soft", "line", "grid", "clean", "noisy", "corrected", "boundary", "nonboundary", "muted", "middle"];
    colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  };

  const font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

  const tip = (title, lines) => {
    const box = make("div", "tip");
    if (title) box.append(make("strong", "", title));
    for (const [role, name, value] of lines) {
      const line = make("div");
      if (role) line.append(make("i", role));
      line.append(make("span", "", name), make("b", "", value));
      box.append(line);
    }
    return box;
  };

  const base = (trigger, formatter) => ({
    animation: false,
    textStyle: { fontFamily: font, color: colours.ink },
    legend: { show: false },
    tooltip: {
      trigger,
      confine: true,
      backgroundColor: colours.surface,
      borderColor: colours.line,
      textStyle: { color: colours.ink },
      axisPointer: { type: "line", lineStyle: { color: colours.soft, type: "dotted" } },
      transitionDuration: 0,
      formatter,
    },
  });

  const axis = (name, gap, format, more) => ({
    type: "value",
    name,
    nameLocation: "middle",
    nameGap: gap,
    nameTextStyle: { color: colours.soft, fontSize: 12 },
    nameTruncate: { maxWidth: 300, ellipsis: "…" },
    axisLine: { show: false },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: colours.grid } },
    axisLabel: { color: colours.soft, fontSize: 11, formatter: format, hideOverlap: true },
    ...more,
  });

  const grid = () => ({ left: 2, right: 18, top: 14, bottom: 4, outerBoundsMode: "same", outerBoundsContain: "all" });

  const cross = (at) => ({
    silent: true,
    symbol: "none",
    animation: false,
    label: { show: false },
    lineStyle: { color: colours.soft, width: 1, type: "solid" },
    data: at,
  });

  const SHADES = 7;
  const symbols = ["circle", "triangle", "rect"];

  // One function per kind of chart: data in, ECharts options out

  const draw = {
    histogram: (data) => {
      const { edges } = data;
      const colour = (series) => colours[data.series.length > 1 ? series.role : "corrected"];
      const bin = (place) => Math.min(Math.max(place - 1, 0), edges.length - 2);
      const formatter = (items) => {
        const at = bin(items[0].dataIndex);
        const range = `${shows.number(edges[at])} to ${shows.number(edges[at + 1])}`;
        return tip(range, items.map((item) => {
          const series = data.series[item.seriesIndex];
          return [series.role, series.name, `${shows.count(series.counts[at])} rows`];
        }));
      };
      return {
        ...base("axis", formatter),
        grid: grid(),
        xAxis: axis(data.xName, 30, ticks.number, { min: edges[0], max: edges[edges.length - 1], splitLine: { show: false }, axisLine: { show: true, onZero: false, lineStyle: { color: colours.line } }, axisLabel: { color: colours.soft, fontSize: 11, formatter: ticks.number, showMinLabel: false, showMaxLabel: false, hideOverlap: true } }),
        yAxis: axis("Training rows", 40, ticks.count, {}),
        series: data.series.map((series, place) => ({
          type: "line",
          name: series.name,
          step: "end",
          symbol: "none",
          data: [[edges[0], 0], ...series.counts.map((n, i) => [edges[i], n]), [edges[edges.length - 1], 0]],
          itemStyle: { color: colour(series) },
          lineStyle: { color: colour(series), width: 1.8, type: series.role === "clean" && data.series.length > 1 ? [5, 3] : "solid" },
          areaStyle: { color: colour(series), opacity: series.role === "clean" && data.series.length > 1 ? 0.06 : 0.16 },
          z: series.role === "clean" ? 4 : 3,
          markLine: place === 0 ? cross([{ xAxis: 0 }]) : undefined,
        })),
      };
    },

    curves: (data, width) => (data.x ? orderedCurves(data) : namedLevels(data, width)),

    scatter: (data) => {
      const formatter = (item) => {
        const series = data.series[item.seriesIndex];
        if (!series.ids) return tip("", [[series.role, series.name, ""]]);
        return tip(`Row ${series.ids[item.dataIndex]}`, [
          ["", data.axes[0], shows.number(item.value[0])],
          ["", data.axes[1], shows.number(item.value[1])],
          [series.role, series.name, ""],
        ]);
      };
      const ends = data.limits ? { min: data.limits[0], max: data.limits[1] } : { scale: true };
      const label = { color: colours.soft, fontSize: 11, formatter: ticks.number, showMinLabel: !data.limits, showMaxLabel: !data.limits, hideOverlap: true };
      const lines = data.crossed
        ? cross([
            { xAxis: 0 },
            { yAxis: 0 },
            [
              { coord: [data.limits[0], data.limits[0]], lineStyle: { type: "dashed", color: colours.soft } },
              { coord: [data.limits[1], data.limits[1]] },
            ],
          ])
        : undefined;
      return {
        ...base("item", formatter),
        grid: grid(),
        xAxis: axis(data.axes[0], 30, ticks.number, { ...ends, axisLabel: label }),
        yAxis: axis(data.axes[1], 40, ticks.number, { ...ends, axisLabel: label }),
        series: data.series.map((series, place) => ({
          type: "scatter",
          name: series.name,
          data: series.points,
          silent: series.role === "muted",
          symbol: series.role === "boundary" || (data.crossed && series.role === "noisy") ? "triangle" : "circle",
          symbolSize: series.role === "muted" ? 3 : data.crossed && place > 0 ? 6 : 5,
          itemStyle: { color: colours[series.role], opacity: series.role === "muted" ? 0.6 : place > 0 ? 0.8 : 0.35 },
          markLine: place === 0 ? lines : undefined,
        })),
      };
    },

    map: (data) => {
      // One series per shade, from pale to strong: a colour for each point of its own would take long to draw.
      const shades = Array.from({ length: 2 * SHADES + 1 }, (_, i) => ({ shade: i - SHADES, points: [], ids: [] }));
      data.points.forEach((point, i) => {
        const share = Math.max(-1, Math.min(1, point[2] / data.reach));
        const shade = shades[Math.round(SHADES * Math.sign(share) * Math.abs(share) ** 0.7) + SHADES];
        shade.points.push(point);
        shade.ids.push(data.ids[i]);
      });
      shades.sort((a, b) => Math.abs(a.shade) - Math.abs(b.shade));
      const formatter = (item) =>
        tip(`Row ${shades[item.seriesIndex].ids[item.dataIndex]}`, [["", data.valueName, shows.number(item.value[2])]]);
      return {
        ...base("item", formatter),
        grid: grid(),
        xAxis: axis(data.axes[0], 30, ticks.number, { scale: true }),
        yAxis: axis(data.axes[1], 40, ticks.number, { scale: true }),
        series: shades.map(({ shade, points }) => ({
          type: "scatter",
          name: String(shade),
          symbolSize: 6,
          data: points,
          itemStyle: { color: between(shade / SHADES), opacity: 0.9 },
        })),
      };
    },

    bars: (data, width) => {
      const formatter = (items) => {
        const at = items[0].dataIndex;
        const lines = [["corrected", "payout", shows.money(data.values[at])]];
        if (data.low) lines.push(["", "between", `${shows.money(data.low[at])} and ${shows.money(data.high[at])}`]);
        if (data.corrected) lines.push(["noisy", "after correction", shows.money(data.corrected[at])]);
        return tip(data.names[at], lines);
      };
      const series = [
        { type: "bar", name: "payout", data: data.values, barMaxWidth: 18, itemStyle: { color: colours.corrected, opacity: 0.75, borderRadius: [0, 3, 3, 0] } },
      ];
      if (data.low) series.push(whiskers("interval", data.low.map((low, i) => [low, data.high[i], i]), colours.ink, true));
      if (data.corrected) {
        series.push({ type: "scatter", name: "after correction", symbol: "diamond", symbolSize: 11, data: data.corrected.map((x, i) => [x, i]), itemStyle: { color: colours.noisy, borderColor: colours.surface, borderWidth: 1 }, z: 5 });
      }
      return {
        ...base("axis", formatter),
        grid: grid(),
        xAxis: axis(data.xName, 30, ticks.money, {}),
        yAxis: names(data.names, Math.min(160, Math.round(0.32 * width)), { overflow: "truncate" }),
        series,
      };
    },
  };

  const names = (list, width, more) => ({
    type: "category",
    data: list,
    inverse: true,
    axisLine: { lineStyle: { color: colours.line } },
    axisTick: { show: false },
    axisLabel: { color: colours.ink, fontSize: 12, width, ...more, interval: 0 },
  });

  // Intervals: data holds [low, high, place]
  const whiskers = (name, data, colour, capped, aside = 0) => ({
    type: "custom",
    name,
    data,
    z: 4,
    silent: true,
    encode: { x: [0, 1], y: 2 },
    renderItem: (_, api) => {
      const [x0, y] = api.coord([api.value(0), api.value(2)]);
      const [x1] = api.coord([api.value(1), api.value(2)]);
      if (!Number.isFinite(x0) || !Number.isFinite(x1)) return null;
      const at = y + aside;
      const style = { stroke: colour, lineWidth: 1.5 };
      const line = (a, b, c, d) => ({ type: "line", shape: { x1: a, y1: b, x2: c, y2: d }, style });
      const parts = [line(x0, at, x1, at)];
      if (capped) parts.push(line(x0, at - 4, x0, at + 4), line(x1, at - 4, x1, at + 4));
      return { type: "group", children: parts };
    },
  });

  // Shares start at 0; shares and correlations that come near 1 end there.
  const reach = ({ show, series }) => {
    const all = series.flatMap(({ mean, low, high }) => [...mean, ...low, ...high]).filter((x) => x !== null);
    const [least, most] = [Math.min(...all), Math.max(...all)];
    const full = most > 0.75 && (show === "percent" || (show === "fixed" && least >= 0 && least < 0.5));
    if (full) return { min: 0, max: 1, interval: 0.25 };
    if (show === "percent") return { min: 0 };
    return { scale: true, max: show === "fixed" && most > 0.75 ? 1 : null };
  };

  const orderedCurves = (data) => {
    const show = shows[data.show];
    const formatter = (items) => {
      const at = items.find((item) => item.seriesType === "line")?.dataIndex ?? 0;
      const lines = data.series.map((series) => [series.role, series.name, series.mean[at] === null ? "–" : withInterval(show, series, at)]);
      return tip(`${data.xName.split(" (")[0]} ${data.levels[at]}`, lines);
    };
    const series = [];
    data.series.forEach((one, place) => {
      const colour = colours[one.role];
      series.push({
        type: "line",
        name: one.name,
        data: data.x.map((x, i) => [x, one.mean[i]]),
        symbol: symbols[place % symbols.length],
        symbolSize: 7,
        lineStyle: { color: colour, width: 2 },
        itemStyle: { color: colour },
        z: 3,
        markLine: place === 0 && data.reference !== null ? { ...cross([{ yAxis: data.reference }]), lineStyle: { color: colours.clean, type: "dashed", width: 1.2 } } : undefined,
      });
      const band = data.x.map((x, i) => [x, one.low[i], one.high[i]]).filter((row) => row[1] !== null && row[2] !== null);
      if (band.length > 1) {
        series.push({
          type: "custom",
          name: one.name,
          data: band,
          silent: true,
          clip: true,
          z: 2,
          encode: { x: 0, y: [1, 2] },
          tooltip: { show: false },
          renderItem: (params, api) => {
            if (params.dataIndex !== 0) return null;
            const points = [...band.map((row) => api.coord([row[0], row[2]])), ...[...band].reverse().map((row) => api.coord([row[0], row[1]]))];
            return { type: "polygon", shape: { points }, style: { fill: colour, opacity: 0.18 } };
          },
        });
      }
    });
    // The dashed line alone would not make the axis reach it.
    if (data.reference !== null) {
      series.push({ type: "line", name: data.referenceName, data: data.x.map((x) => [x, data.reference]), symbol: "none", silent: true, lineStyle: { opacity: 0 }, tooltip: { show: false } });
    }
    const few = data.x.length <= 8;
    const label = { color: colours.soft, fontSize: 11, hideOverlap: true, formatter: (x) => ticks.number(x) };
    return {
      ...base("axis", formatter),
      grid: grid(),
      xAxis: axis(data.xName, 28, ticks.number, {
        type: data.log ? "log" : "value",
        min: data.x[0] === data.x[data.x.length - 1] ? undefined : data.log ? data.x[0] : Math.min(0, data.x[0]),
        max: data.x[0] === data.x[data.x.length - 1] ? undefined : data.x[data.x.length - 1],
        splitLine: { show: false },
        axisLine: { show: true, onZero: false, lineStyle: { color: colours.line } },
        axisLabel: few ? { ...label, customValues: data.x } : label,
      }),
      yAxis: axis("", 0, ticks[data.show], { ...reach(data), splitNumber: 4 }),
      series,
    };
  };

  const namedLevels = (data, width) => {
    const show = shows[data.show];
    const formatter = (items) => {
      const at = items[0].dataIndex;
      return tip(data.levels[at], data.series.map((one) => [one.role, one.name, one.mean[at] === null ? "–" : withInterval(show, one, at)]));
    };
    const series = [];
    data.series.forEach((one, place) => {
      const aside = 7 * (place - (data.series.length - 1) / 2);
      series.push({ type: "scatter", name: one.name, data: one.mean.map((x, i) => [x, i]), symbol: symbols[place % symbols.length], symbolSize: 9, symbolOffset: [0, aside], itemStyle: { color: colours[one.role] }, z: 5, markLine: place === 0 && data.reference !== null ? { ...cross([{ xAxis: data.reference }]), lineStyle: { color: colours.clean, type: "dashed", width: 1.2 } } : undefined });
      series.push(whiskers(one.name, one.low.map((low, i) => [low ?? NaN, one.high[i] ?? NaN, i]), colours[one.role], false, aside));
    });
    if (data.reference !== null) {
      series.push({ type: "scatter", name: data.referenceName, data: data.levels.map((_, i) => [data.reference, i]), symbolSize: 0, silent: true });
    }
    return {
      ...base("axis", formatter),
      grid: grid(),
      xAxis: axis("", 0, ticks[data.show], { ...reach(data), splitNumber: 3 }),
      yAxis: names(data.levels, Math.min(230, Math.round(0.42 * width)), { overflow: "break", lineHeight: 15 }),
      series,
    };
  };

  const withInterval = (show, series, at) =>
    series.low[at] === null || series.high[at] === null ? show(series.mean[at]) : `${show(series.mean[at])} (${show(series.low[at])} to ${show(series.high[at])})`;

  // Colour of a value from -1 to 1
  const between = (share) => {
    const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const end = parse(share > 0 ? colours.corrected : colours.noisy);
    const middle = parse(colours.middle);
    return `rgb(${middle.map((x, i) => Math.round(x + Math.abs(share) * (end[i] - x))).join(",")})`;
  };

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
      if (data.low || data.corrected) key("corrected", "payout");
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
  const headings = [...table.tHead.rows[0].cells];
  const numeric = headings.map((heading) => heading.classList.contains("n"));
  for (const { element } of rows) numeric.forEach((is, i) => is && element.cells[i].classList.add("n"));

  const sortBy = (column) => {
    const up = headings[column].getAttribute("aria-sort") !== "ascending";
    headings.forEach((heading) => heading.removeAttribute("aria-sort"));
    headings[column].setAttribute("aria-sort", up ? "ascending" : "descending");
    const text = new Intl.Collator("en", { numeric: true });
    const compare = (a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      if (x === "" || y === "") return (x === "") - (y === ""); // what is missing comes last either way
      const order = numeric[column] ? Number(x) - Number(y) : text.compare(x, y);
      return up ? order : -order;
    };
    rows.sort(compare);
    body.append(...rows.map((row) => row.element));
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
    for (const { element, text } of rows) {
      const fits = (!end.value || element.classList.contains(end.value)) && words.every((word) => text.includes(word));
      element.hidden = !fits;
      n += fits;
    }
    shown.textContent = n === rows.length ? `${whole.format(n)} rows` : `${whole.format(n)} of ${whole.format(rows.length)} rows`;
  };
  search.addEventListener("input", filter);
  end.addEventListener("change", filter);
  document.getElementById("controls").hidden = false;
  filter();

  // Go

  readColours();
  const waiting = [...document.querySelectorAll("[data-chart]")];
  while (waiting.length && waiting[0].getBoundingClientRect().top < innerHeight) start(waiting.shift());
  // The page grows while charts are drawn; only a new width is a reason to draw one again.
  const watch = new ResizeObserver(() => {
    for (const one of drawn) {
      if (one.plot.clientWidth === one.width) continue;
      one.width = one.plot.clientWidth;
      one.chart.resize();
    }
  });
  watch.observe(document.querySelector("main"));
  root.dataset.ready = String(Math.round(performance.now()));
  // The charts further down follow one by one, so that the page answers in between.
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
