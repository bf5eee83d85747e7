"use strict";
// What a chart looks like: data in, ECharts options out. Text from the data reaches the page as text only: as
// textContent, or painted on a canvas. Never as HTML.
const looks = (() => {
  let colours = {};

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // Numbers

  const plain = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
  // Ticks are round numbers already: cutting digits would make two of them read the same.
  const round = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 9 });
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const money = (digits) => {
    const format = new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return (x) => minus(format.format(x));
  };
  const minus = (text) => text.replace("-", "\u2212");
  const shows = {
    number: (x) => minus(Math.abs(x) >= 1000 ? whole.format(x) : plain.format(x)),
    fixed: (x) => minus(x.toFixed(2)),
    count: (x) => whole.format(x),
    percent: (x) => `${minus(plain.format(100 * x))}%`,
  };
  shows.size = shows.number;
  const tick = (x) => minus(round.format(Math.abs(x) < 1e-12 ? 0 : x));
  const ticks = {
    number: tick,
    fixed: tick,
    count: (x) => (x >= 1e6 ? `${tick(x / 1e6)}M` : whole.format(x)),
    percent: (x) => `${tick(100 * x)}%`,
    money: (x) => (Math.abs(x) >= 1e6 ? `${tick(x / 1e6)}M` : minus(whole.format(x))),
  };
  ticks.size = ticks.number;

  // What all charts share

  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
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
    precision: -1, // otherwise a line at 0.0032 is drawn at 0.00
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
        yAxis: axis("Training rows", 40, ticks.count, { minInterval: 1 }),
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
      const amount = money(data.digits);
      const formatter = (items) => {
        const at = items[0].dataIndex;
        const lines = [["corrected", "payout", amount(data.values[at])]];
        if (data.sampleLow) lines.push(["", data.sampleName, `${amount(data.sampleLow[at])} and ${amount(data.sampleHigh[at])}`]);
        if (data.low) lines.push(["", "between", `${amount(data.low[at])} and ${amount(data.high[at])}`]);
        if (data.corrected) lines.push(["noisy", "after correction", amount(data.corrected[at])]);
        return tip(data.names[at], lines);
      };
      const most = Math.max(...data.values, ...(data.high ?? []), ...(data.sampleHigh ?? []), ...(data.corrected ?? []));
      const room = Math.min(160, Math.round(0.32 * width));
      const short = fitted(data.names, room);
      const series = [
        { type: "bar", name: "payout", data: data.values, barMaxWidth: 18, itemStyle: { color: colours.corrected, opacity: 0.75, borderRadius: [0, 3, 3, 0] } },
      ];
      if (data.sampleLow) series.push(whiskers("sample", data.sampleLow.map((low, i) => [low, data.sampleHigh[i], i]), colours.muted, false, 7, 4));
      if (data.low) series.push(whiskers("interval", data.low.map((low, i) => [low, data.high[i], i]), colours.ink, true));
      if (data.corrected) {
        series.push({ type: "scatter", name: "after correction", symbol: "diamond", symbolSize: 11, data: data.corrected.map((x, i) => [x, i]), itemStyle: { color: colours.noisy, borderColor: colours.surface, borderWidth: 1 }, z: 5 });
      }
      return {
        ...base("axis", formatter),
        grid: grid(),
        xAxis: axis(data.xName, 30, most < 10 ? amount : ticks.money, { minInterval: 10 ** -data.digits }),
        yAxis: names(data.names, room, { formatter: (_, i) => short[i] }),
        series,
      };
    },
  };

  // Cut in the middle, as names often differ at the end only; those that still look alike get their place in front.
  const fitted = (list, width) => {
    const brush = document.createElement("canvas").getContext("2d");
    brush.font = `12px ${font}`;
    const fit = (text) => {
      const letters = [...text];
      let kept = letters.length;
      let shown = text;
      while (kept > 2 && brush.measureText(shown).width > width) {
        kept -= 1;
        shown = `${letters.slice(0, Math.ceil(kept / 2)).join("")}…${letters.slice(letters.length - Math.floor(kept / 2)).join("")}`;
      }
      return shown;
    };
    const short = list.map(fit);
    return short.map((text, i) => (short.filter((other) => other === text).length > 1 ? fit(`${i + 1}. ${list[i]}`) : text));
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
  const whiskers = (name, data, colour, capped, aside = 0, width = 1.5) => ({
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
      const style = { stroke: colour, lineWidth: width };
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
    if (show === "percent") return most === 0 ? { min: 0, max: 0.1, interval: 0.05 } : { min: 0 };
    if (show === "count") return { scale: true, minInterval: 1 };
    if (show !== "fixed" || most <= 0.75) return { scale: true };
    // From 1 down in equal steps: ECharts would put the last label right under it.
    const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25].find((size) => 1 - 4 * size <= least);
    return step ? { min: 1 - 4 * step, max: 1, interval: step } : { scale: true, max: 1 };
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
        symbol: data.x.length > 60 ? "none" : symbols[place % symbols.length],
        symbolSize: one.mean.filter((x) => x !== null).length === 1 ? 11 : data.x.length > 20 ? 4 : 7,
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

  return { draw, make, readColours, shows };
})();
