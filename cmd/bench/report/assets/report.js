// Draws the plots of a report. The data is in the page; nothing is fetched.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("plots").textContent);
  const drawers = []; // each draws one chart anew, in the colours and the width of now

  function color(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  const columnOf = (name) => data.columns.find((column) => column.name === name);

  function axis(gridIndex, more) {
    const quiet = color("quiet");
    return { gridIndex, axisLabel: { color: quiet, fontSize: 11, hideOverlap: true }, nameTextStyle: { color: quiet }, splitLine: { lineStyle: { color: color("line") } }, ...more };
  }

  function line(index, points, drawn, more) {
    return { type: "line", xAxisIndex: index, yAxisIndex: index, data: points, symbol: "none", itemStyle: { color: drawn }, lineStyle: { color: drawn, width: 2 }, emphasis: { disabled: true }, ...more };
  }

  const points = (samples) => samples.map((value, i) => [(i + 0.5) / 10, value]);

  // A row for each column: answered calls on the left, the age of answers on the right.
  function timeline(scenario) {
    const { columns } = data.timelines.find((one) => one.scenario === scenario);
    const oldest = Math.max(1, ...columns.flatMap((column) => column.age.map((age) => age || 0)));
    const option = { animation: false, title: [], grid: [], xAxis: [], yAxis: [], series: [] };
    columns.forEach((column, row) => {
      const { title, class: hue } = columnOf(column.column);
      const drawn = color(hue);
      const top = 24 + row * 84;
      option.title.push({ text: title, left: 40, top: top - 22, textStyle: { fontSize: 12, color: drawn } });
      const until = column.age.length / 10;
      [{ left: 40, right: "52%", max: 100 }, { left: "52%", right: 20, max: oldest }].forEach(({ left, right, max }, side) => {
        const index = 2 * row + side;
        option.grid.push({ left, right, top, height: 48 });
        option.xAxis.push(axis(index, { type: "value", max: until, axisLabel: { show: row === columns.length - 1, color: color("quiet"), formatter: "{value} s" } }));
        option.yAxis.push(axis(index, { type: "value", min: 0, max, interval: max / 2, axisLabel: { color: color("quiet"), fontSize: 11, formatter: (v) => `${Math.round(v * 10) / 10}` } }));
      });
      const bands = { silent: true, itemStyle: { color: color("fault") }, data: column.bands.map((band) => [{ xAxis: band.from }, { xAxis: Math.max(band.to, band.from + 0.1) }]) };
      option.series.push(
        line(2 * row, points(column.others), drawn, { markArea: bands, lineStyle: { color: drawn, width: 1.5, type: "dashed" } }),
        line(2 * row, points(column.struck), drawn),
        line(2 * row + 1, points(column.age), drawn, { markArea: bands, areaStyle: { opacity: 0.2 } }),
      );
    });
    return { option, height: 40 + columns.length * 84 };
  }

  function curves() {
    const option = { animation: false, grid: [{ left: 60, right: "54%", top: 12, bottom: 30 }, { left: "54%", right: 20, top: 12, bottom: 30 }], xAxis: [], yAxis: [], series: [] };
    [1, 2].forEach((key, index) => {
      option.xAxis.push(axis(index, { type: "log" }));
      option.yAxis.push(axis(index, { type: "log" }));
      data.curves.forEach((curve) => {
        const drawn = curve.points.filter((point) => point[0] > 0 && point[key] > 0).map((point) => [point[0], point[key]]);
        option.series.push(line(index, drawn, color(columnOf(curve.column).class), { symbol: "circle", symbolSize: 6 }));
      });
    });
    return { option, height: 260 };
  }

  function chart(element, make) {
    const instance = echarts.init(element, null, { renderer: "svg" });
    drawers.push(() => {
      const { option, height } = make();
      element.style.height = `${height}px`;
      instance.resize({ width: element.clientWidth, height });
      instance.setOption(option, { notMerge: true });
    });
  }

  function draw() {
    drawers.forEach((redraw) => redraw());
    const root = document.documentElement;
    root.dataset.charts = drawers.length;
    root.dataset.overflow = root.scrollWidth - root.clientWidth; // px by which the page is wider than its window: for tests
  }

  document.querySelectorAll("[data-scenario]").forEach((element) => chart(element, () => timeline(element.dataset.scenario)));
  const cost = document.getElementById("curves");
  if (cost) chart(cost, curves);
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", draw);
})();
