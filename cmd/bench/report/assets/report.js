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
    const names = ["page", "text", "quiet", "line", "grid", "cp", "cp-thin", "ap", "ap-thin", "fault", "fault-edge", "bad"];
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

  // Labels of an axis need not say more than the tick.
  const axisMillis = (ms) => (ms >= 1000 ? `${ms / 1000} s` : ms >= 1 ? `${ms} ms` : `${ms * 1000} µs`);

  function escaped(text) {
    return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  }

  // --- time lines: panels below each other on one axis of time, a row for each mode in each panel ---

  const panels = {
    success: {
      title: "Answered calls", unit: "% of those due", styles: "━━ writes   ┅┅ reads", height: 74, format: percent, max: 100, interval: 50, axis: (v) => `${v}`,
      lines: [{ key: "writeSuccess", name: "writes answered" }, { key: "readSuccess", name: "reads answered", thin: true }],
    },
    sides: {
      title: "Answered calls, by side", unit: "% of those due", styles: "━━ clients cut off   ┅┅ others", height: 74, format: percent, max: 100, interval: 50, axis: (v) => `${v}`, optional: true,
      lines: [{ key: "cutOffSuccess", name: "answered, clients cut off" }, { key: "othersSuccess", name: "answered, others", thin: true }],
    },
    latency: {
      title: "Latency", unit: "p99 of the answered calls, logarithmic", styles: "━━ writes   ┅┅ reads", height: 88, log: true, format: millis, axis: axisMillis,
      lines: [{ key: "writeLatency", name: "writes, p99" }, { key: "readLatency", name: "reads, p99", thin: true }],
    },
    age: {
      title: "Age of stale answers", unit: "the oldest of each 100 ms", height: 74, area: true, least: 0.2, answers: true, format: (v) => (v === 0 ? "fresh" : seconds(v)), axis: (v) => (v === 0 ? "fresh" : seconds(v)),
      lines: [{ key: "age", name: "oldest answer" }],
    },
    missing: listPanel("missing", "Missing from lists", "alive, but not listed"),
    ghosts: listPanel("ghosts", "Ghosts in lists", "gone, but listed"),
    behind: listPanel("behind", "Out of date in lists", "listed in an older version"),
  };

  function listPanel(key, title, unit) {
    return { title, unit: `${unit}; instances, worst node`, height: 58, area: true, optional: true, least: 2, format: count, axis: (v) => `${v}`, lines: [{ key, name: title.toLowerCase() }] };
  }

  const backlogPanels = [
    { title: "Replicators' queues", unit: "tasks, all nodes", height: 110, format: count, axis: (v) => count(v), together: true, lines: [{ key: "queued", name: "queued" }] },
    { title: "Replication lag", unit: "of the peer most behind", height: 110, format: seconds, axis: seconds, together: true, lines: [{ key: "lag", name: "lag" }] },
    { title: "Not yet healed", unit: "acknowledged before the fault ended, not in the worst node's list", height: 110, least: 2, format: count, axis: (v) => count(v), together: true, lines: [{ key: "unhealed", name: "not yet healed" }] },
  ];

  const modesOf = (line) => data.modes.filter((mode) => line.modes[mode]);

  function values(line, panel) {
    return modesOf(line).flatMap((mode) => panel.lines.flatMap(({ key }) => line.modes[mode][key].filter((v) => v !== null)));
  }

  // fits leaves out panels in which there is nothing to see: no value above 0, or, where 0 says something, none at all.
  function fits(line, panel) {
    if (panel.answers) return values(line, panel).length > 0;
    return !panel.optional || shows(line, panel);
  }

  const shows = (line, panel) => values(line, panel).some((v) => v > 0);

  // extent is the same for both modes, or their heights could not be compared.
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

  // rows lays the panels out: a grid for each panel and mode, from the top down.
  function rows(line, which) {
    const modes = modesOf(line);
    let top = 0;
    const list = [];
    which.forEach((panel, number) => {
      const labels = number === 0; // of the faults, above each row of the first panel
      top += 26 + (labels && panel.together ? 16 : 0);
      const title = { panel, top: top - 24 - (labels && panel.together ? 16 : 0) };
      (panel.together ? [modes] : modes.map((mode) => [mode])).forEach((shown, i) => {
        top += !panel.together && labels ? 20 : i > 0 ? 12 : 0;
        const height = Math.round(panel.height * density());
        list.push({ panel, modes: shown, top, height, labels, title: i === 0 ? title : null });
        top += height;
      });
      top += 16;
    });
    return { list, height: top };
  }

  function leaderRows(line, top) {
    const list = [];
    modesOf(line).forEach((mode) => {
      const strips = line.modes[mode].leaders;
      strips.forEach((strip) => {
        if (list.length === 0) top += 26;
        list.push({ strip, tag: strips.length > 1 ? `${mode.toUpperCase()} ${strip.dc}` : undefined, modes: [mode], top, height: 22, title: list.length === 0 ? { panel: { title: "Leader", unit: "of the greatest term that any node tells" }, top: top - 24 } : null });
        top += 22 + 8;
      });
    });
    return { list, height: top };
  }

  // A page of paper must hold a whole plot.
  const density = () => (matchMedia("print").matches ? 0.62 : 1);

  const left = 88;
  const right = 22;

  function timelineOption(line, which, width, withLeaders) {
    const colors = palette();
    const laid = rows(line, which);
    const strips = withLeaders ? leaderRows(line, laid.height) : { list: [], height: laid.height };
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

  function titles({ title, tag, modes, top, height, panel }, colors, width) {
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
      list.push({ text: tag || modes[0].toUpperCase(), left: 2, top: top + height / 2 - 8, padding: 0, textStyle: { fontSize: 13, fontWeight: 700, color: colors[modes[0]] } });
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
    row.modes.forEach((mode, m) => {
      row.panel.lines.forEach((shown, n) => {
        const drawn = modeColor(colors, mode, shown.thin);
        list.push({
          type: "line", xAxisIndex: index, yAxisIndex: index, data: points(line.modes[mode][shown.key]), symbol: "none", connectNulls: false, z: shown.thin ? 3 : 4,
          lineStyle: { color: drawn, width: shown.thin ? 1.4 : 2, type: shown.thin ? [5, 3] : "solid" }, itemStyle: { color: drawn }, emphasis: { disabled: true },
          areaStyle: row.panel.area ? { color: drawn, opacity: 0.16 } : undefined,
          // Of several modes in one grid the first one's faults are drawn; they are injected at the same times.
          markArea: m === 0 && n === 0 ? faultBands(line.modes[mode].bands, colors) : undefined,
          markLine: m === 0 && n === 0 ? edges(line, mode, row.labels, colors, inner) : undefined,
        });
      });
    });
    return list;
  }

  const modeColor = (colors, mode, thin) => colors[thin ? `${mode}-thin` : mode];

  function faultBands(bands, colors) {
    return { silent: true, itemStyle: { color: colors.fault }, label: { show: false }, data: bands.filter((b) => b.to > b.from).map((b) => [{ xAxis: b.from }, { xAxis: b.to }]) };
  }

  // edges are where faults begin and end, and the load ends. Begins have a text where there is room up to the next
  // edge with one, and otherwise the number that they have below the plot.
  function edges(line, mode, labeled, colors, inner) {
    const { bands, length } = line.modes[mode];
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
  function stripSeries(index, { strip, modes }, line, colors, inner) {
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
      markArea: { silent: true, data: areas }, markLine: edges(line, modes[0], false, colors, inner),
    };
  }

  function tooltip(colors, formatter) {
    return {
      trigger: "axis", confine: true, transitionDuration: 0, backgroundColor: colors.page, borderColor: colors.line, textStyle: { color: colors.text, fontFamily }, className: "tip", formatter,
    };
  }

  function timeTip(line, which, params) {
    const at = params.find((p) => p.value && p.value.length === 2);
    if (!at) return "";
    const slot = Math.floor(at.value[0] / step);
    const modes = modesOf(line);
    const body = which.flatMap((panel) => panel.lines.map((shown) => {
      const cells = modes.map((mode) => {
        const value = line.modes[mode][shown.key][slot];
        return `<td>${value === null || value === undefined ? "–" : panel.format(value)}</td>`;
      });
      return `<tr><th>${shown.name}</th>${cells.join("")}</tr>`;
    }));
    const heads = modes.map((mode) => `<td><b class="mode ${mode}">${mode}</b></td>`).join("");
    const faults = [...new Set(modes.flatMap((mode) => line.modes[mode].bands.filter((b) => b.from <= at.value[0] && at.value[0] < b.to).map((b) => b.text)))];
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
        type: "line", step: "end", data: distributionPoints(line, min, max), symbol: "none", emphasis: { disabled: true }, z: line.mode === "cp" ? 4 : 3,
        lineStyle: { color: colors[line.mode], width: 2, type: dash(names.indexOf(line.name)) }, itemStyle: { color: colors[line.mode] },
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
      return `<tr><th><b class="mode ${line.mode}">${line.mode}</b> ${escaped(line.name)}</th><td>${percent(below ? line.share[below - 1] : 0)}</td><td>of ${count(line.count)}</td></tr>`;
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

  function plan(kind, line) {
    if (kind === "main") return { which: [shows(line, panels.sides) ? panels.sides : panels.success, panels.age], leaders: false };
    if (kind === "backlog") return { which: backlogPanels.filter((panel) => shows(line, panel)), leaders: false };
    return { which: Object.values(panels).filter((panel) => fits(line, panel)), leaders: true };
  }

  function addTimelines() {
    document.querySelectorAll("[data-plot]").forEach((element) => {
      const line = timelines.get(element.dataset.scenario);
      const { which, leaders } = plan(element.dataset.plot, line);
      chart(element, (width) => timelineOption(line, which, width, leaders));
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
      chart(panel(parent, `by ${plot.way}${plot.abroad ? ", in the other datacenter" : ""}`), () => ({ height: 210, option: distributionOption({ lines: plot.lines, min, max, format: axisMillis, colors: palette(), names }) }));
    });
    scenarioLegend("way-legend", names);
  }

  // scenarioLegend names the lines of plots that have one for each mode and scenario.
  function scenarioLegend(id, names) {
    const legend = document.getElementById(id);
    names.forEach((name, i) => data.modes.forEach((mode) => {
      const entry = document.createElement("span");
      const sample = document.createElement("i");
      sample.className = `line ${mode}`;
      if (i > 0) sample.style.borderTopStyle = i > 1 ? "dotted" : "dashed";
      entry.append(sample, `${mode.toUpperCase()}, ${name}`);
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
      const marks = [{ at: 180000, text: "stock Eureka, 180 s", solid: true }, ...(lease > 0 ? [{ at: lease * 1000, text: `lease, ${lease} s` }] : [])];
      const { min, max } = limits([...died, { delay: [lease * 1000] }]);
      chart(panel(parent, "Died"), () => ({ height, option: distributionOption({ lines: died, min, max: Math.max(max, 1e6), marks, format: axisMillis, colors: palette(), names }) }));
      scenarioLegend("removal-legend", names);
    }
    if (canceled && canceled.length) {
      const { min, max } = limits(canceled);
      chart(panel(parent, "Canceled"), () => ({ height, option: distributionOption({ lines: canceled, min, max, marks: [], format: axisMillis, colors: palette(), names: ["canceled"] }) }));
    }
  }

  function draw() {
    drawers.forEach((redraw) => redraw());
    document.documentElement.dataset.charts = drawers.length;
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

  addTimelines();
  addWays();
  addRemovals();
  draw();
  listen();
})();
