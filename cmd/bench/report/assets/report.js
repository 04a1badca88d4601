// Draws the plots of a report. The data is in the page; nothing is fetched. Every function below either shapes data,
// makes a part of an ECharts option, or draws.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("plots").textContent);
  const timelines = new Map(data.timelines.map((line) => [line.scenario, line]));
  const step = 0.1; // seconds between two samples
  const fontFamily = getComputedStyle(document.body).fontFamily;

  // --- colours: the style sheet has them, and knows whether it is light or dark ---

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);

  function color(name) {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  function palette() {
    const hues = data.columns.flatMap((column) => [column.class, `${column.class}-thin`]);
    const names = ["page", "text", "quiet", "line", "grid", "fault", "fault-edge", "bad", ...hues];
    const colors = Object.fromEntries(names.map((name) => [name, color(name)]));
    colors.nodes = [0, 1, 2, 3, 4, 5].map((n) => color(`node-${n}`));
    return colors;
  }

  // --- numbers ---

  function short(value) {
    const text = value >= 100 ? value.toFixed(0) : value.toPrecision(3);
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  function millis(ms) {
    if (ms >= 1000) return `${short(ms / 1000)} s`;
    return ms >= 1 ? `${short(ms)} ms` : `${short(ms * 1000)} µs`;
  }

  const seconds = (s) => (s > 0 && s < 1 ? `${short(s * 1000)} ms` : `${short(s)} s`);
  const percent = (p) => (p > 99.99 && p < 100 ? "> 99.99 %" : `${p >= 99 && p < 100 ? p.toFixed(2) : short(p)} %`);
  const count = (n) => Math.round(n).toLocaleString("en-US");

  function bytes(n) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let i = 0;
    for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
    return `${short(n)} ${units[i]}`;
  }

  // Labels of an axis need not say more than the tick.
  const axisMillis = (ms) => (ms >= 1000 ? `${ms / 1000} s` : ms >= 1 ? `${ms} ms` : `${ms * 1000} µs`);

  function escaped(text) {
    return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  }

  // --- time lines: panels below each other on one axis of time, a row for each column in each panel in which something happens there ---

  const panels = {
    success: {
      title: "Answered calls", unit: "% of those due", styles: "━━ writes   ┅┅ reads", height: 74, format: percent, max: 100, interval: 50, axis: (v) => `${v}`, flat: (all) => Math.min(...all) === 100, still: "all",
      lines: [{ key: "writeSuccess", name: "writes answered" }, { key: "readSuccess", name: "reads answered", thin: true }],
    },
    sides: {
      title: "Answered calls, by side", unit: "% of those due", styles: "━━ cut off   ┅┅ others", height: 74, format: percent, max: 100, interval: 50, axis: (v) => `${v}`, flat: (all) => Math.min(...all) === 100, still: "all",
      lines: [{ key: "cutOffSuccess", name: "answered, clients cut off" }, { key: "othersSuccess", name: "answered, others", thin: true }],
    },
    latency: {
      title: "Latency", unit: "p99 of the answered calls, logarithmic", styles: "━━ writes   ┅┅ reads", height: 88, log: true, format: millis, axis: axisMillis, flat: calmLatency, still: "within 20 ms, or three times the median",
      lines: [{ key: "writeLatency", name: "writes, p99" }, { key: "readLatency", name: "reads, p99", thin: true }],
    },
    age: {
      title: "Age of stale answers", unit: "the oldest of each 100 ms", height: 74, area: true, least: 0.2, flat: (all, top) => Math.max(...all) <= top / 20, still: "fresh, or a twentieth as old as the oldest at most", format: (v) => (v === 0 ? "fresh" : seconds(v)), axis: (v) => (v === 0 ? "fresh" : seconds(v)),
      lines: [{ key: "age", name: "oldest answer" }],
    },
    missing: listPanel("missing", "Missing from lists", "alive, but not listed"),
    ghosts: listPanel("ghosts", "Ghosts in lists", "gone, but listed"),
    behind: listPanel("behind", "Out of date in lists", "listed in an older version"),
  };

  function listPanel(key, title, unit) {
    return { title, unit: `${unit}; instances, worst node`, height: 58, area: true, least: 2, flat: (all) => Math.max(...all) === 0, still: "none", format: count, axis: (v) => `${v}`, lines: [{ key, name: title.toLowerCase() }] };
  }

  const backlogPanels = [
    { title: "Replicators' queues", unit: "tasks, all nodes", height: 110, format: count, axis: (v) => count(v), together: true, lines: [{ key: "queued", name: "queued" }] },
    { title: "Replication lag", unit: "of the peer most behind", height: 110, format: seconds, axis: seconds, together: true, lines: [{ key: "lag", name: "lag" }] },
    { title: "Not yet healed", unit: "acknowledged before the fault ended, not in the worst node's list", height: 110, least: 2, format: count, axis: (v) => count(v), together: true, lines: [{ key: "unhealed", name: "not yet healed" }] },
  ];

  function calmLatency(all) {
    const sorted = [...all].sort((a, b) => a - b);
    return sorted[sorted.length - 1] <= Math.max(20, 3 * sorted[Math.floor(sorted.length / 2)]);
  }

  // columnsOf are the columns that a time line has, as many as are wanted.
  const columnsOf = (line) => data.columns.filter((column) => Object.hasOwn(line.columns, column.name)); // a column may be called constructor

  const known = (line, panel, column) => panel.lines.flatMap(({ key }) => line.columns[column.name][key].filter((v) => v !== null));

  const values = (line, panel) => columnsOf(line).flatMap((column) => known(line, panel, column));

  const shows = (line, panel) => values(line, panel).some((v) => v > 0);

  // eventful are the columns in which anything happens in a panel.
  function eventful(line, panel) {
    const top = Math.max(0, ...values(line, panel));
    return columnsOf(line).filter((column) => {
      const all = known(line, panel, column);
      return all.length > 0 && !(panel.flat && panel.flat(all, top));
    });
  }

  // foldedText names what is not drawn because nothing happens there.
  function foldedText(line, which) {
    const parts = which.flatMap((panel) => {
      const flat = columnsOf(line).filter((column) => known(line, panel, column).length > 0 && !eventful(line, panel).includes(column));
      if (flat.length === 0) return [];
      const who = flat.length === columnsOf(line).length ? "every column" : flat.map((column) => column.title).join("; ");
      return [`${panel.title.toLowerCase()}: ${panel.still} (${who})`];
    });
    return parts.length ? `Not drawn, for nothing happens there: ${parts.join(" · ")}.` : "";
  }

  // extent is the same for all columns, or their heights could not be compared.
  function extent(line, panel) {
    const all = values(line, panel).filter((v) => !panel.log || v > 0);
    if (panel.log) {
      // Of values above 0 only: a logarithmic axis has no other.
      const [low, high] = all.length ? [Math.min(...all), Math.max(...all)] : [1, 10];
      return { min: 10 ** Math.floor(Math.log10(low)), max: 10 ** Math.ceil(Math.log10(high * 1.001)) };
    }
    return { min: 0, max: panel.max || roundUp(Math.max(panel.least || 0, Math.max(0, ...all) * 1.05)) };
  }

  // roundUp finds a limit of which the half is a round number, too.
  function roundUp(value) {
    if (value <= 0) return 1;
    const power = 10 ** Math.floor(Math.log10(value));
    const factors = power >= 10 ? [1, 1.2, 1.6, 2, 3, 4, 6, 8, 10] : [1, 2, 4, 6, 8, 10];
    return factors.map((factor) => factor * power).find((limit) => limit >= value);
  }

  // points leaves the gaps in, and marks points that have a gap on both sides: no line would show them.
  function points(samples) {
    const known = (i) => samples[i] !== null && samples[i] !== undefined;
    return samples.map((value, i) => {
      const at = [Math.round((i + 0.5) * step * 1000) / 1000, value];
      return known(i) && !known(i - 1) && !known(i + 1) ? { value: at, symbol: "circle", symbolSize: 4 } : at;
    });
  }

  // rows lays the panels out: a grid for each panel and column, from the top down.
  function rows(line, which, folds) {
    let top = 0;
    const list = [];
    which.forEach((panel) => {
      const columns = folds && !panel.together ? eventful(line, panel) : columnsOf(line);
      if (columns.length === 0) return;
      const labels = list.length === 0; // of the faults, above each row of the first panel
      top += 26 + (labels && panel.together ? 16 : 0);
      const title = { panel, top: top - 24 - (labels && panel.together ? 16 : 0) };
      (panel.together ? [columns] : columns.map((column) => [column])).forEach((shown, i) => {
        top += !panel.together && labels ? 20 : i > 0 ? 12 : 0;
        const height = Math.round(panel.height * density());
        list.push({ panel, columns: shown, top, height, labels, title: i === 0 ? title : null });
        top += height;
      });
      top += 16;
    });
    return { list, height: top };
  }

  function leaderRows(line, top) {
    const list = [];
    columnsOf(line).forEach((column) => {
      const strips = line.columns[column.name].leaders;
      strips.forEach((strip) => {
        if (list.length === 0) top += 26;
        list.push({ strip, tag: strips.length > 1 ? `${label(column)} ${strip.dc}` : undefined, columns: [column], top, height: 22, title: list.length === 0 ? { panel: { title: "Leader", unit: "of the greatest term that any node tells" }, top: top - 24 } : null });
        top += 22 + 8;
      });
    });
    return { list, height: top };
  }

  // label names a column in the margin of a plot, which is narrow.
  function label(column) {
    const text = column.title.length <= 10 ? column.title : column.name;
    return text.length <= 10 ? text : `${text.slice(0, 9)}…`;
  }

  // A page of paper must hold a whole plot.
  const density = () => (matchMedia("print").matches ? 0.62 : 1);

  const left = 100;
  const right = 22;

  function timelineOption(line, which, width, full) {
    const colors = palette();
    const laid = rows(line, which, full);
    const strips = full ? leaderRows(line, laid.height) : { list: [], height: laid.height };
    const all = [...laid.list, ...strips.list];
    const inner = width - left - right;
    return {
      height: strips.height + 16,
      option: {
        animation: false,
        textStyle: { fontFamily, color: colors.text },
        title: all.flatMap((row) => titles(row, colors, width)),
        grid: all.map(({ top, height }) => ({ left, right, top, height })),
        xAxis: all.map((row, i) => timeAxis(i, i === all.length - 1, line.until, colors, width)),
        yAxis: all.map((row, i) => valueAxis(i, row, line, colors)),
        series: all.flatMap((row, i) => (row.strip ? [stripSeries(i, row, line, colors, inner)] : lineSeries(i, row, line, colors, inner))),
        axisPointer: { link: [{ xAxisIndex: "all" }], lineStyle: { color: colors.quiet, type: "solid" } },
        tooltip: tooltip(colors, (params) => timeTip(line, which, params)),
      },
    };
  }

  function titles({ title, tag, columns, top, height, panel }, colors, width) {
    const list = [];
    if (title) {
      const { unit, styles } = title.panel;
      const said = width < 560 ? styles || unit.split(/[;,] /)[0] : styles ? `${unit}   ${styles}` : unit;
      list.push({
        text: `{b|${title.panel.title}}   {u|${said}}`, left: 0, top: title.top, padding: 0,
        textStyle: { rich: { b: { fontSize: 13, fontWeight: 600, color: colors.text }, u: { fontSize: 12, fontWeight: "normal", color: colors.quiet } } },
      });
    }
    if (!panel || !panel.together) {
      list.push({ text: tag || label(columns[0]), left: 2, top: top + height / 2 - 8, padding: 0, textStyle: { fontSize: 12, fontWeight: 700, color: colors[columns[0].class] } });
    }
    return list;
  }

  function timeAxis(gridIndex, last, until, colors, width) {
    return {
      gridIndex, type: "value", min: 0, max: until, interval: width < 560 ? 5 : until > 30 ? 5 : 1,
      axisLine: { show: true, onZero: false, lineStyle: { color: colors.line } }, axisTick: { show: last, lineStyle: { color: colors.line } },
      axisLabel: { show: last, color: colors.quiet, fontSize: 11, showMaxLabel: Number.isInteger(until), formatter: (v) => `${v} s` },
      splitLine: { lineStyle: { color: colors.grid } }, axisPointer: { label: { show: false } },
    };
  }

  function valueAxis(gridIndex, row, line, colors) {
    if (row.strip) return { gridIndex, type: "value", min: 0, max: 1, show: false };
    const { panel } = row;
    const { min, max } = extent(line, panel);
    return {
      gridIndex, type: panel.log ? "log" : "value", min, max, interval: panel.log ? undefined : panel.interval || max / 2,
      axisLabel: { color: colors.quiet, fontSize: 11, formatter: panel.axis, hideOverlap: true, verticalAlignMinLabel: "bottom", verticalAlignMaxLabel: "top" }, axisTick: { show: false }, axisLine: { show: false },
      splitLine: { lineStyle: { color: colors.grid } }, axisPointer: { show: false },
    };
  }

  function lineSeries(index, row, line, colors, inner) {
    const list = [];
    row.columns.forEach((column, m) => {
      row.panel.lines.forEach((shown, n) => {
        const drawn = colors[shown.thin ? `${column.class}-thin` : column.class];
        list.push({
          type: "line", xAxisIndex: index, yAxisIndex: index, data: points(line.columns[column.name][shown.key]), symbol: "none", connectNulls: false, z: shown.thin ? 3 : 4,
          lineStyle: { color: drawn, width: shown.thin ? 1.4 : 2, type: shown.thin ? [5, 3] : "solid" }, itemStyle: { color: drawn }, emphasis: { disabled: true },
          areaStyle: row.panel.area ? { color: drawn, opacity: 0.16 } : undefined,
          // Of several columns in one grid the first one's faults are drawn; they are injected at the same times.
          markArea: m === 0 && n === 0 ? faultBands(line.columns[column.name].bands, colors) : undefined,
          markLine: m === 0 && n === 0 ? edges(line, column, row.labels, colors, inner) : undefined,
        });
      });
    });
    return list;
  }

  function faultBands(bands, colors) {
    return { silent: true, itemStyle: { color: colors.fault }, label: { show: false }, data: bands.filter((b) => b.to > b.from).map((b) => [{ xAxis: b.from }, { xAxis: b.to }]) };
  }

  // edges are where faults begin and end, and the load ends. Begins have a text where there is room up to the next
  // edge with one, and otherwise the number that they have below the plot.
  function edges(line, column, labeled, colors, inner) {
    const { bands, length } = line.columns[column.name];
    const begins = bands.map((band, i) => ({ at: band.from, text: bands.length > 1 ? `${circled(i)} ${band.text}` : band.text, brief: circled(i) }));
    const quiet = { lineStyle: { type: "dotted" } };
    const stops = line.until - length > 0.5 ? [...begins, { at: length, text: "load ends", brief: "", ...quiet }] : begins;
    const labels = stops.map((stop, i) => {
      const room = (((i + 1 < stops.length ? stops[i + 1].at : line.until) - stop.at) / line.until) * inner + (i + 1 < stops.length ? 0 : right);
      return { xAxis: stop.at, lineStyle: stop.lineStyle, label: { show: labeled, formatter: textWidth(stop.text) < room ? stop.text : stop.brief } };
    });
    const ends = bands.filter((b) => b.to > b.from).map((b) => ({ xAxis: b.to, label: { show: false } }));
    return {
      silent: true, symbol: "none", animation: false, data: [...labels, ...ends], lineStyle: { color: colors["fault-edge"], type: "solid", width: 1, opacity: 0.7 },
      label: { position: "end", align: "left", distance: 4, color: colors.text, fontSize: 11, opacity: 1 },
    };
  }

  const circled = (i) => (i < 20 ? String.fromCodePoint(0x2460 + i) : `${i + 1}`);

  const textWidth = (text) => text.length * 6.3; // of the labels' font, at most

  // stripSeries shows the leaders as areas of a line that is not drawn.
  function stripSeries(index, { strip, columns }, line, colors, inner) {
    const names = [...new Set(strip.reigns.map((reign) => reign.name))].filter(Boolean).sort();
    const reigns = strip.reigns.filter((reign) => reign.from < line.until).map((reign) => ({ ...reign, to: Math.min(reign.to, line.until) }));
    const areas = reigns.map((reign) => {
      const room = ((reign.to - reign.from) / line.until) * inner;
      const text = [`${reign.name}, term ${reign.term}`, reign.name].find((t) => textWidth(t) < room - 6) || "";
      const nobody = ["no leader", "none"].find((t) => textWidth(t) < room - 4) || "";
      return [
        {
          xAxis: reign.from, yAxis: 0, itemStyle: reign.name ? { color: colors.nodes[names.indexOf(reign.name) % colors.nodes.length] } : { color: "transparent", borderColor: colors.bad, borderWidth: 1 },
          label: { show: true, position: "inside", formatter: reign.name ? text : nobody, color: reign.name ? colors.text : colors.bad, fontSize: 11 },
        },
        { xAxis: reign.to, yAxis: 1 },
      ];
    });
    return {
      type: "line", xAxisIndex: index, yAxisIndex: index, data: [[0, 0], [line.until, 0]], symbol: "none", lineStyle: { opacity: 0 }, emphasis: { disabled: true },
      markArea: { silent: true, data: areas }, markLine: edges(line, columns[0], false, colors, inner),
    };
  }

  const tag = (column) => `<b class="tag ${column.class}">${escaped(label(column))}</b>`;

  const columnOf = (name) => data.columns.find((column) => column.name === name);

  function tooltip(colors, formatter) {
    return {
      trigger: "axis", confine: true, transitionDuration: 0, backgroundColor: colors.page, borderColor: colors.line, textStyle: { color: colors.text, fontFamily }, className: "tip", formatter,
    };
  }

  function timeTip(line, which, params) {
    const at = params.find((p) => p.value && p.value.length === 2);
    if (!at) return "";
    const slot = Math.floor(at.value[0] / step);
    const columns = columnsOf(line);
    const body = which.flatMap((panel) => panel.lines.map((shown) => {
      const cells = columns.map((column) => {
        const value = line.columns[column.name][shown.key][slot];
        return `<td>${value === null || value === undefined ? "–" : panel.format(value)}</td>`;
      });
      return `<tr><th>${shown.name}</th>${cells.join("")}</tr>`;
    }));
    const heads = columns.map((column) => `<td>${tag(column)}</td>`).join("");
    const faults = [...new Set(columns.flatMap((column) => line.columns[column.name].bands.filter((b) => b.from <= at.value[0] && at.value[0] < b.to).map((b) => b.text)))];
    const begin = slot * step;
    return `<b>${begin.toFixed(1)} to ${(begin + step).toFixed(1)} s</b>${faults.map((f) => `<br>${escaped(f)}`).join("")}<table><tr><th></th>${heads}</tr>${body.join("")}</table>`;
  }

  // --- distributions ---

  const dash = (index) => ["solid", [6, 4], [2, 3]][Math.min(index, 2)];

  function distributionOption({ lines, min, max, marks, format, colors, names, bottom }) {
    return {
      animation: false,
      textStyle: { fontFamily, color: colors.text },
      grid: { left: 46, right: 26, top: marks ? 30 : 12, bottom: bottom || 26 },
      xAxis: {
        type: "log", min, max, axisLabel: { color: colors.quiet, fontSize: 11, formatter: format, hideOverlap: true }, axisLine: { lineStyle: { color: colors.line } },
        splitLine: { show: true, lineStyle: { color: colors.grid } }, axisPointer: { label: { show: false } },
      },
      yAxis: {
        type: "value", min: 0, max: 100, interval: 25, axisLabel: { color: colors.quiet, fontSize: 11, formatter: "{value} %" }, splitLine: { lineStyle: { color: colors.grid } }, axisPointer: { show: false },
      },
      series: lines.map((line, i) => ({
        type: "line", step: "end", data: distributionPoints(line, min, max), symbol: "none", emphasis: { disabled: true }, z: 3,
        lineStyle: { color: colors[columnOf(line.column).class], width: 2, type: dash(names.indexOf(line.name)) }, itemStyle: { color: colors[columnOf(line.column).class] },
        markLine: i === 0 && marks ? references(marks, colors) : undefined,
      })),
      tooltip: { ...tooltip(colors, (params) => distributionTip(lines, params, format)), axisPointer: { lineStyle: { color: colors.quiet } } },
    };
  }

  // distributionPoints begins at 0 % and goes on to the right edge; what is left of the left edge is drawn on it.
  function distributionPoints(line, min, max) {
    const list = line.delay.map((delay, i) => [Math.max(delay, min), line.share[i]]);
    const last = list.length ? list[list.length - 1][1] : 0;
    return [[list.length ? list[0][0] : min, 0], ...list, [max, last]];
  }

  function references(marks, colors) {
    return {
      silent: true, symbol: "none", lineStyle: { color: colors.quiet, type: "dashed", width: 1.5 },
      label: { position: "end", color: colors.text, fontSize: 12, distance: 5 },
      data: marks.map(({ at, text, solid }) => ({ xAxis: at, label: { formatter: text }, lineStyle: solid ? { type: "solid", width: 2 } : undefined })),
    };
  }

  function distributionTip(lines, params, format) {
    const at = params[0] && params[0].axisValue;
    if (!at) return "";
    const list = lines.map((line) => {
      const below = line.delay.filter((delay) => delay <= at).length;
      return `<tr><th>${tag(columnOf(line.column))} ${escaped(line.name)}</th><td>${percent(below ? line.share[below - 1] : 0)}</td><td>of ${count(line.count)}</td></tr>`;
    });
    return `<b>within ${millis(at)}</b><table>${list.join("")}</table>`;
  }

  // limits are powers of ten around what is shown, the left one not below 0.1 ms.
  function limits(lines) {
    const all = lines.flatMap((line) => line.delay);
    const low = Math.max(0.1, Math.min(...all.filter((d) => d > 0), 1000));
    const high = Math.max(low * 10, ...all);
    return { min: 10 ** Math.floor(Math.log10(low)), max: 10 ** Math.ceil(Math.log10(high)) };
  }

  // --- drawing ---

  const drawers = []; // each draws one chart anew, in the colours and the width of now

  function chart(element, make) {
    const instance = echarts.init(element, null, { renderer: "svg" });
    drawers.push(() => {
      const { option, height } = make(element.clientWidth);
      element.style.height = `${height}px`;
      instance.resize({ width: element.clientWidth, height });
      instance.setOption(option, { notMerge: true });
    });
  }

  // firstColumns is a time line of the columns of which sentences tell.
  function firstColumns(line) {
    return { ...line, columns: Object.fromEntries(columnsOf(line).slice(0, 3).map((column) => [column.name, line.columns[column.name]])) };
  }

  function plan(kind, line) {
    if (kind === "main") return { which: [shows(line, panels.sides) ? panels.sides : panels.success, panels.age], line: firstColumns(line), full: false };
    if (kind === "backlog") return { which: backlogPanels.filter((panel) => shows(line, panel)), line, full: false };
    const both = shows(line, panels.sides) ? Object.values(panels) : Object.values(panels).filter((panel) => panel !== panels.sides);
    return { which: both, line, full: true };
  }

  function addTimelines() {
    document.querySelectorAll("[data-plot]").forEach((element) => {
      const { which, line, full } = plan(element.dataset.plot, timelines.get(element.dataset.scenario));
      chart(element, (width) => timelineOption(line, which, width, full));
      if (full) element.parentElement.querySelector(".folded").textContent = foldedText(line, which);
    });
  }

  function panel(parent, title) {
    const box = document.createElement("div");
    const heading = document.createElement("h3");
    heading.textContent = title;
    const element = document.createElement("div");
    element.className = "chart";
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", title);
    box.append(heading, element);
    parent.append(box);
    return element;
  }

  function addWays() {
    const parent = document.getElementById("ways");
    if (!parent) return;
    const { min, max } = limits(data.ways.flatMap((plot) => plot.lines));
    const names = [...new Set(data.ways.flatMap((plot) => plot.lines.map((line) => line.name)))];
    data.ways.forEach((plot) => {
      chart(panel(parent, plot.title), () => ({ height: 210, option: distributionOption({ lines: plot.lines, min, max, format: axisMillis, colors: palette(), names }) }));
    });
    scenarioLegend("way-legend", names);
  }

  // scenarioLegend names the lines of plots that have one for each mode and scenario.
  function scenarioLegend(id, names) {
    const legend = document.getElementById(id);
    names.forEach((name, i) => data.columns.forEach((column) => {
      const entry = document.createElement("span");
      const sample = document.createElement("i");
      sample.className = `line ${column.class}`;
      if (i > 0) sample.style.borderTopStyle = i > 1 ? "dotted" : "dashed";
      entry.append(sample, names.length > 1 ? `${column.title}: ${name}` : column.title);
      legend.append(entry);
    }));
  }

  function addRemovals() {
    const parent = document.getElementById("removals");
    if (!parent) return;
    const { died, canceled, lease } = data.removal;
    const height = 280;
    if (died && died.length) {
      const names = [...new Set(died.map((line) => line.name))];
      const marks = lease > 0 ? [{ at: lease * 1000, text: `lease, ${lease} s` }] : [];
      const { min, max } = limits([...died, { delay: [lease * 1000] }]);
      chart(panel(parent, "Died"), () => ({ height, option: distributionOption({ lines: died, min, max, marks, format: axisMillis, colors: palette(), names }) }));
      scenarioLegend("removal-legend", names);
    }
    if (canceled && canceled.length) {
      const { min, max } = limits(canceled);
      chart(panel(parent, "Canceled"), () => ({ height, option: distributionOption({ lines: canceled, min, max, marks: [], format: axisMillis, colors: palette(), names: ["canceled"] }) }));
    }
  }

  // --- costs ---

  const costs = [
    { key: "cpu", title: "Processors of all nodes", format: (v) => `${short(v)} cores` },
    { key: "written", title: "Written to the disk of a node", format: (v) => `${bytes(v)}/s` },
    { key: "memory", title: "Memory of a node at the end", format: bytes },
  ];

  function addCurves() {
    const parent = document.getElementById("curves");
    if (!parent) return;
    const rates = data.curves.flatMap((curve) => curve.points.map((p) => p.rate)).filter((rate) => rate > 0);
    costs.forEach((cost) => chart(panel(parent, cost.title), () => ({ height: 260, option: curveOption(cost, rates, palette()) })));
  }

  function curveOption(cost, rates, colors) {
    const axis = (format) => ({ type: "log", axisLabel: { color: colors.quiet, fontSize: 11, formatter: format, hideOverlap: true }, axisLine: { lineStyle: { color: colors.line } }, splitLine: { show: true, lineStyle: { color: colors.grid } } });
    const all = data.curves.flatMap((curve) => curve.points.map((p) => p[cost.key])).filter((v) => v > 0);
    const range = (list) => ({ min: 10 ** Math.floor(Math.log10(Math.min(...list, 1e9))), max: 10 ** Math.ceil(Math.log10(Math.max(...list, 1e-9))) });
    const series = data.curves.flatMap((curve) => {
      const color = colors[columnOf(curve.column).class];
      const drawn = curve.points.filter((p) => p.rate > 0 && p[cost.key] > 0);
      const line = (points, hollow) => ({
        type: "line", data: points.map((p) => [p.rate, p[cost.key]]), symbol: hollow ? "emptyCircle" : "circle", symbolSize: hollow ? 9 : 6, name: curve.column, emphasis: { disabled: true },
        lineStyle: { color, width: 2, opacity: hollow ? 0 : 1 }, itemStyle: { color },
      });
      return [line(drawn.filter((p) => p.carried), false), line(drawn.filter((p) => !p.carried), true)];
    });
    return {
      animation: false, textStyle: { fontFamily, color: colors.text }, grid: { left: 74, right: 26, top: 12, bottom: 40 },
      xAxis: { ...axis((v) => count(v)), ...range(rates), name: "renewals a second", nameLocation: "middle", nameGap: 24, nameTextStyle: { color: colors.quiet, fontSize: 11 } },
      yAxis: { ...axis(cost.format), ...range(all) }, series,
      tooltip: { ...tooltip(colors, (p) => `${tag(columnOf(p.seriesName))} ${short(p.value[0])} renewals a second: ${cost.format(p.value[1])}`), trigger: "item" },
    };
  }

  // costAt is a cost at a load that is within a twentieth of a rate, else on the straight line between the loads around it; below the
  // least load what that one costs; NaN above the greatest. The tables of examples are computed likewise (curve.at).
  function costAt(curve, rate, key) {
    let below = null;
    for (const p of curve.points.filter((point) => point.carried)) {
      if (Math.abs(p.rate - rate) <= rate / 20) return p[key];
      if (p.rate >= rate) return below ? below[key] + ((rate - below.rate) / (p.rate - below.rate)) * (p[key] - below[key]) : p[key];
      below = p;
    }
    return NaN;
  }

  function addFleet() {
    const form = document.getElementById("fleet");
    if (!form) return;
    const own = document.getElementById("fleet-own");
    const [instances, every] = ["fleet-instances", "fleet-every"].map((id) => document.getElementById(id));
    form.hidden = own.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    const update = () => own.querySelectorAll("td").forEach((td) => {
      const curve = data.curves.find((c) => c.column === td.dataset.name);
      const rate = instances.valueAsNumber / every.valueAsNumber;
      const cpu = curve && rate > 0 ? costAt(curve, rate, "cpu") : NaN;
      td.textContent = Number.isFinite(cpu) ? `about ${short(cpu)} cores, ${bytes(costAt(curve, rate, "written") * 86400)} to each disk a day` : curve ? "not measured" : "not run";
    });
    form.addEventListener("input", update);
    update();
  }

  function draw() {
    drawers.forEach((redraw) => redraw());
    const root = document.documentElement;
    root.dataset.charts = drawers.length;
    root.dataset.overflow = root.scrollWidth - root.clientWidth; // px by which the page is wider than its window: for tests
  }

  function isDark() {
    return getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  }

  function listen() {
    const root = document.documentElement;
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      draw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    // Paper is light, and narrower than most windows: what was drawn for the window is drawn anew for it.
    matchMedia("print").addEventListener("change", draw);
    let waiting = 0;
    let width = root.clientWidth;
    addEventListener("resize", () => {
      if (root.clientWidth === width) return; // a phone's address bar came or went
      width = root.clientWidth;
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(draw);
    });
  }

  if (document.documentElement.dataset.only) document.getElementById(document.documentElement.dataset.only)?.classList.add("only");
  addTimelines();
  addWays();
  addRemovals();
  addCurves();
  addFleet();
  draw();
  listen();
})();
