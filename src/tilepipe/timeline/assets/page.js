"use strict";
// Draws timelines on a canvas: of what is visible only, and of events that share a pixel only one.
(() => {
  const NONE = -1, COPY = 0, MMA = 1, WAIT = 2;
  const GUTTER = 176, AXIS = 22, HEAD = 22, BAND = 20, ROW = 15, GAP = 7;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const T = DATA.texts;
  const canvas = document.getElementById("canvas"), view = document.getElementById("view");
  const tip = document.getElementById("tip"), search = document.getElementById("search");
  const pen = canvas.getContext("2d");
  const percent = (x) => `${Math.round(100 * x)} %`;
  const number = (x) => x.toLocaleString("en");

  // -- the model: runs, CTAs, lanes with rows of events that do not overlap ---------------------

  const runs = DATA.runs.map((run, at) => ({ ...run, at, ev: run.events, ctas: new Map(), of: run.ctas }));
  let END = 0, COUNT = 0;
  for (const run of runs) {
    const cta = (id) => {
      if (!run.ctas.has(id)) {
        run.ctas.set(id, { run, id, folded: false, lanes: [], rings: [], unit: null });
      }
      return run.ctas.get(id);
    };
    run.lane = run.lanes.map(([id, role, part]) => {
      const lane = { run, cta: cta(id), name: `${T[role]} ${T[part]}`.trim(), waits: [], rows: [], ends: [] };
      lane.cta.lanes.push(lane);
      return lane;
    });
    run.units.forEach((unit) => { cta(unit.cta).unit = unit; });
    run.rings.forEach((ring) => { cta(ring.cta).rings.push(ring); });
    const { lane, kind, begin, end } = run.ev;
    for (let i = 0; i < lane.length; i++) {
      COUNT++;
      END = Math.max(END, end[i]);
      const to = run.lane[lane[i]];
      if (kind[i] === WAIT) { to.waits.push(i); continue; }
      let row = to.ends.findIndex((t) => t <= begin[i] + 1e-9);
      if (row < 0) { row = to.rows.length; to.rows.push([]); }
      to.rows[row].push(i);
      to.ends[row] = end[i];
    }
  }
  END = END || 1;

  function prefix(intervals) { // the time that intervals cover up to each of their bounds
    const sums = new Float64Array(intervals.length);
    for (let i = 0, sum = 0; i < intervals.length; i += 2) {
      sums[i] = sum;
      sums[i + 1] = sum += intervals[i + 1] - intervals[i];
    }
    return (t) => {
      const i = after(intervals, t);
      if (i === 0) return 0;
      return sums[i - 1] + ((i - 1) % 2 === 0 ? t - intervals[i - 1] : 0);
    };
  }
  function integral(times, values) {
    const sums = new Float64Array(times.length);
    for (let i = 1; i < times.length; i++) sums[i] = sums[i - 1] + values[i - 1] * (times[i] - times[i - 1]);
    return (t) => {
      const i = after(times, t);
      return i === 0 ? 0 : sums[i - 1] + values[i - 1] * (t - times[i - 1]);
    };
  }
  function after(sorted, t) { // how many are at most t
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= t) low = middle + 1; else high = middle;
    }
    return low;
  }
  function firstEnding(ids, end, t, from = 0) { // the first of a row that ends after t
    let low = from, high = ids.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end[ids[middle]] <= t) low = middle + 1; else high = middle;
    }
    return low;
  }

  // -- where things stand, from top to bottom ---------------------------------------------------

  let strips = [], height = 0;
  function arrange() {
    strips = [];
    let y = 0;
    const add = (strip) => { strips.push({ ...strip, y }); y += strip.h; };
    for (const run of runs) {
      if (runs.length > 1) add({ type: "run", h: HEAD + 4, run });
      for (const cta of run.ctas.values()) {
        add({ type: "cta", h: HEAD, cta });
        if (cta.folded) continue;
        if (cta.unit && cta.unit.tensor.length) add(band("tensor core", cta.unit.tensorBusy, cta.unit.tensor, "--mma"));
        if (cta.unit && cta.unit.tma.length) add(band("TMA", cta.unit.tmaBusy, cta.unit.tma, "--copy"));
        for (const ring of cta.rings) {
          ring.mean ??= integral(ring.times, ring.filled);
          add({ type: "band", h: BAND + 6, name: `${T[ring.ring]}: filled of ${ring.stages}`, sum: ring.mean, top: ring.stages, colour: "--ring", ring });
        }
        for (const lane of cta.lanes) {
          add({ type: "gap", h: GAP });
          lane.top = y;
          if (lane.waits.length) add({ type: "row", h: ROW, lane, ids: lane.waits });
          for (const ids of lane.rows) add({ type: "row", h: ROW, lane, ids });
          lane.bottom = y;
          if (lane.bottom - lane.top < ROW) y = lane.bottom = lane.top + ROW;
        }
        add({ type: "gap", h: GAP });
      }
    }
    height = y;
  }
  function band(name, busy, intervals, colour) {
    return { type: "band", h: BAND, name: `${name} ${percent(busy)}`, sum: prefix(intervals), top: 1, colour };
  }

  // -- drawing ------------------------------------------------------------------------------------

  let from = 0, to = END * 1.02, scroll = 0, wide = 1, high = 1, colours = {}, hatch = {};
  let hovered = null, kept = null, matches = null, pending = false;
  const X = (t) => GUTTER + (t - from) * (wide - GUTTER) / (to - from);
  const timeAt = (x) => from + (x - GUTTER) * (to - from) / (wide - GUTTER);

  function restyle() {
    const style = getComputedStyle(document.documentElement);
    colours = new Proxy({}, { get: (kept, name) => kept[name] ??= style.getPropertyValue(name).trim() });
    hatch = { "--wait": stripes("--wait", "--wait-line"), "--own": stripes("--own", "--own-line"), "--stuck": stripes("--stuck", "--stuck-line") };
  }
  function stripes(back, line) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const p = tile.getContext("2d");
    p.fillStyle = colours[back];
    p.fillRect(0, 0, 8, 8);
    p.strokeStyle = colours[line];
    p.globalAlpha = 0.32;
    p.lineWidth = 1.2;
    p.beginPath();
    for (const d of [-8, 0, 8]) { p.moveTo(d, 8); p.lineTo(d + 8, 0); }
    p.stroke();
    return pen.createPattern(tile, "repeat");
  }
  function resize() {
    const ratio = window.devicePixelRatio || 1;
    wide = view.clientWidth;
    high = view.clientHeight;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  function redraw() {
    if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); }
  }
  function draw() {
    scroll = Math.max(0, Math.min(scroll, height + AXIS - high));
    pen.fillStyle = colours["--back"];
    pen.fillRect(0, 0, wide, high);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    grid();
    const names = [];
    for (let n = firstVisible(); n < strips.length; n++) {
      const strip = strips[n], y = strip.y - scroll + AXIS;
      if (y > high) break;
      if (strip.type === "row") drawRow(strip, y);
      else if (strip.type === "band") drawBand(strip, y);
      if (strip.type !== "gap") names.push([strip, y]);
    }
    drawArrows();
    pen.fillStyle = colours["--panel"];
    pen.fillRect(0, AXIS, GUTTER, high);
    const drawn = new Set();
    for (const [strip, y] of names) drawName(strip, y, drawn);
    axis();
    if (height + AXIS > high) {
      const part = (high - AXIS) / height, top = AXIS + scroll / height * (high - AXIS);
      pen.fillStyle = colours["--own-line"];
      pen.globalAlpha = 0.5;
      pen.fillRect(wide - 7, top, 5, Math.max(part * (high - AXIS), 20));
      pen.globalAlpha = 1;
    }
    const digits = to - from < 1 ? 4 : 2;
    document.getElementById("range").textContent = `${Math.max(from, 0).toFixed(digits)} – ${to.toFixed(digits)} µs`;
  }
  function firstVisible() {
    let low = 0, top = strips.length;
    while (low < top) {
      const middle = (low + top) >> 1;
      if (strips[middle].y + strips[middle].h < scroll) low = middle + 1; else top = middle;
    }
    return low;
  }
  function ticks() {
    const least = (to - from) / Math.max((wide - GUTTER) / 90, 1), power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least);
    const found = [];
    for (let n = Math.max(Math.ceil(from / step), 0); n * step <= to; n++) found.push(n * step);
    return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }
  function grid() {
    pen.fillStyle = colours["--faint"];
    for (const t of ticks().found) pen.fillRect(Math.round(X(t)), AXIS, 1, high);
  }
  function axis() {
    pen.fillStyle = colours["--panel"];
    pen.fillRect(0, 0, wide, AXIS);
    pen.fillStyle = colours["--line"];
    pen.fillRect(0, AXIS - 1, wide, 1);
    pen.fillRect(GUTTER - 1, AXIS, 1, high);
    const { found, digits } = ticks();
    pen.textAlign = "left";
    for (const t of found) {
      const x = Math.round(X(t));
      if (x < GUTTER) continue;
      pen.fillStyle = colours["--line"];
      pen.fillRect(x, AXIS - 6, 1, 6);
      pen.fillStyle = colours["--soft"];
      if (x + 40 < wide) pen.fillText(t.toFixed(digits), x + 4, AXIS / 2);
    }
    pen.fillStyle = colours["--soft"];
    pen.fillText("µs since the CTA started", 10, AXIS / 2);
  }
  function drawName(strip, y, drawn) {
    pen.textAlign = "left";
    if (strip.type === "run" || strip.type === "cta") {
      pen.fillStyle = colours[strip.type === "run" ? "--line" : "--cta"];
      pen.fillRect(0, y, wide, strip.h - 2);
      pen.fillStyle = colours["--text"];
      pen.font = "600 12px system-ui, sans-serif";
      const cta = strip.cta;
      pen.fillText(cta ? `${cta.folded ? "▸" : "▾"} CTA ${cta.id}` : T[strip.run.name], 10, y + strip.h / 2 - 1);
      pen.font = "11px system-ui, sans-serif";
      if (cta && cta.unit) {
        const { us, tensorBusy, tmaBusy } = cta.unit, busy = `  ·  tensor core ${percent(tensorBusy)}  ·  TMA ${percent(tmaBusy)}`;
        pen.fillStyle = colours["--soft"];
        pen.fillText(`${us.toFixed(2)} µs${cta.folded ? busy : ""}`, GUTTER + 8, y + strip.h / 2 - 1);
      }
      return;
    }
    let text = strip.name, at = y + strip.h / 2;
    if (strip.type === "row") {
      if (drawn.has(strip.lane)) return;
      drawn.add(strip.lane);
      text = strip.lane.name;
      at = Math.max(strip.lane.top - scroll + AXIS, AXIS) + ROW / 2;
    }
    pen.fillStyle = colours[strip.type === "row" ? "--text" : "--soft"];
    pen.fillText(cut(text, GUTTER - 24), 14, at);
  }
  function cut(text, width) {
    if (measured(text) <= width) return text;
    let short = text;
    while (short && measured(`${short}…`) > width) short = short.slice(0, -1);
    return `${short}…`;
  }

  function drawBand(strip, y) {
    const bottom = y + strip.h - 2, tall = strip.h - 5, left = Math.max(GUTTER, Math.floor(X(0)));
    pen.fillStyle = colours["--faint"];
    pen.fillRect(left, bottom - tall, Math.max(Math.min(X(END), wide) - left, 0), tall);
    pen.fillStyle = colours[strip.colour];
    pen.globalAlpha = 0.75;
    let before = strip.sum(timeAt(left));
    const right = Math.min(Math.ceil(X(END)), wide);
    for (let x = left; x < right; x++) {
      const sum = strip.sum(timeAt(x + 1)), mean = (sum - before) / (timeAt(x + 1) - timeAt(x)) / strip.top;
      before = sum;
      if (mean > 0.002) pen.fillRect(x, bottom - tall * Math.min(mean, 1), 1, tall * Math.min(mean, 1));
    }
    pen.globalAlpha = 1;
  }

  const colourOf = (ev, i) => (ev.kind[i] === MMA ? "--mma" : /store|reduce/.test(T[ev.op[i]]) ? "--out" : "--copy");
  function drawRow(strip, y) {
    const { run } = strip.lane, { begin, end, kind } = run.ev, ids = strip.ids, tall = strip.h - 2;
    const perPixel = (to - from) / (wide - GUTTER);
    let n = firstEnding(ids, end, from);
    while (n < ids.length && begin[ids[n]] < to) {
      const i = ids[n], x0 = Math.max(X(begin[i]), GUTTER - 1), x1 = Math.min(X(end[i]), wide + 1);
      const w = Math.max(x1 - x0, 1), chosen = same(hovered, run, i) || same(kept, run, i);
      const dim = matches && !matches[run.at][i];
      pen.globalAlpha = dim ? 0.16 : 1;
      let ink;
      if (kind[i] === WAIT) {
        const back = run.ev.stuck[i] ? "--stuck" : run.ev.phase[i] === NONE ? "--own" : "--wait";
        pen.fillStyle = w < 3 ? colours[`${back}-line`] : hatch[back];
        pen.fillRect(x0, y, w, tall);
        pen.fillStyle = colours[`${back}-line`];
        if (w >= 3) { pen.fillRect(x0, y, 1, tall); pen.fillRect(x1 - 1, y, 1, tall); }
        ink = colours[`${back}-text`];
      } else {
        const colour = colourOf(run.ev, i);
        pen.fillStyle = colours[colour];
        pen.fillRect(x0, y, w > 3 ? w - 1 : w, tall);
        ink = colours[`${colour}-text`];
      }
      if (w > 18) {
        pen.fillStyle = ink;
        pen.textAlign = "left";
        pen.fillText(label(run, i, w - 6), x0 + 3, y + tall / 2 + 0.5);
      }
      pen.globalAlpha = 1;
      if (chosen) {
        pen.strokeStyle = colours["--mark"];
        pen.lineWidth = 1.5;
        pen.strokeRect(x0 + 0.5, y - 0.5, Math.max(w - 1, 2), tall + 1);
      }
      // what ends within the same pixel is not drawn again
      const next = timeAt(Math.floor(x0 + w)) - perPixel * 0.01;
      n = w <= 1.5 && !matches ? Math.max(firstEnding(ids, end, next, n + 1), n + 1) : n + 1;
    }
  }
  const stageOf = (about) => (/\[\d+\]/.exec(about) || [""])[0];
  function label(run, i, width) { // as much as there is room for
    const ev = run.ev, about = T[ev.about[i]], stage = stageOf(about);
    if (ev.kind[i] === WAIT) {
      if (ev.phase[i] === NONE) return fitting([`own ${T[ev.on[i]]}`, "own"], width);
      return fitting([about, about.slice(about.lastIndexOf(".") + 1), stage], width);
    }
    const what = object(ev, i).replace(/\[[^\]]*\]/g, "");
    return fitting([`${stage} ${what}`.trim(), `${stage} ${what.split(" ")[0]}`.trim(), stage], width);
  }
  const widths = new Map();
  function measured(text) {
    if (!widths.has(text)) widths.set(text, pen.measureText(text).width);
    return widths.get(text);
  }
  const fitting = (texts, width) => texts.find((text) => measured(text) <= width) ?? "";
  const object = (ev, i) => {
    const op = T[ev.op[i]], what = T[ev.what[i]];
    return what.startsWith(`${op} `) ? what.slice(op.length + 1) : what;
  };
  const same = (one, run, i) => one !== null && one.run === run && one.i === i;

  // -- who releases whom ------------------------------------------------------------------------

  const releases = runs.map(() => null); // run -> "lane|line|op|time" -> the waits released there
  function released(run) {
    if (releases[run.at] === null) {
      const ev = run.ev, found = new Map();
      for (let i = 0; i < ev.lane.length; i++) {
        if (ev.kind[i] !== WAIT || ev.by[i] === NONE) continue;
        const key = `${ev.by[i]}|${ev.byAt[i]}|${ev.byOp[i]}|${ev.byTime[i]}`;
        if (!found.has(key)) found.set(key, []);
        found.get(key).push(i);
      }
      releases[run.at] = found;
    }
    return releases[run.at];
  }
  function releasedBy(run, i) {
    const ev = run.ev;
    if (ev.kind[i] === WAIT) return [];
    return released(run).get(`${ev.lane[i]}|${ev.at[i]}|${ev.op[i]}|${ev.end[i]}`) || [];
  }
  function unitThatReleases(run, i) { // the copy or MMA at the end of which a wait was released
    const ev = run.ev, lane = run.lane[ev.by[i]];
    for (const ids of lane.rows) {
      const n = firstEnding(ids, ev.end, ev.byTime[i] - 1e-4);
      for (let k = n; k < ids.length && ev.begin[ids[k]] <= ev.byTime[i]; k++) {
        const u = ids[k];
        if (Math.abs(ev.end[u] - ev.byTime[i]) < 1e-4 && ev.at[u] === ev.byAt[i] && ev.op[u] === ev.byOp[i]) return u;
      }
    }
    return NONE;
  }
  function placeOf(run, i) { // the middle of an event's row; null where its CTA is folded
    const lane = run.lane[run.ev.lane[i]];
    if (lane.cta.folded) return null;
    if (run.ev.kind[i] === WAIT) return lane.top + ROW / 2 - 1;
    const row = lane.rows.findIndex((ids) => {
      const n = firstEnding(ids, run.ev.end, run.ev.begin[i]);
      return ids[n] === i;
    });
    return lane.top + (lane.waits.length ? ROW : 0) + Math.max(row, 0) * ROW + ROW / 2 - 1;
  }
  function drawArrows() {
    for (const one of new Set([kept, hovered])) {
      if (!one) continue;
      const { run, i } = one, ev = run.ev;
      const waits = ev.kind[i] === WAIT ? [i] : releasedBy(run, i);
      for (const wait of waits.slice(0, 200)) {
        if (ev.by[wait] === NONE) continue;
        const unit = ev.kind[i] === WAIT ? unitThatReleases(run, wait) : i;
        const lane = run.lane[ev.by[wait]], target = placeOf(run, wait);
        const source = unit !== NONE ? placeOf(run, unit) : (lane.cta.folded ? null : lane.top + ROW / 2 - 1);
        if (source !== null && target !== null) arrow(X(ev.byTime[wait]), source, X(ev.end[wait]), target);
      }
    }
  }
  function arrow(x0, source, x1, target) {
    const y0 = source - scroll + AXIS, y1 = target - scroll + AXIS, bend = x0 + Math.max(18, (x1 - x0) / 2);
    pen.strokeStyle = pen.fillStyle = colours["--arrow"];
    pen.lineWidth = 1.6;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(bend, y0, x1 + 18, y0 + (y1 - y0) * 0.5, x1 + 1, y1);
    pen.stroke();
    pen.beginPath();
    pen.arc(x0, y0, 3, 0, 7);
    pen.fill();
    pen.beginPath();
    const side = Math.sign(y1 - y0) || 1;
    pen.moveTo(x1 + 1, y1);
    pen.lineTo(x1 + 8, y1 - 7 * side);
    pen.lineTo(x1 - 1, y1 - 8 * side);
    pen.fill();
  }

  // -- what is under the pointer ----------------------------------------------------------------

  function stripAt(y) {
    const at = y - AXIS + scroll;
    return y < AXIS ? undefined : strips.find((s) => s.y <= at && at < s.y + s.h);
  }
  function eventAt(x, y) {
    const strip = stripAt(y);
    if (!strip || strip.type !== "row" || x < GUTTER) return null;
    const run = strip.lane.run, { begin, end } = run.ev, slack = 2 * (to - from) / (wide - GUTTER);
    const n = firstEnding(strip.ids, end, timeAt(x) - slack), i = strip.ids[n];
    return i !== undefined && begin[i] <= timeAt(x) + slack ? { run, i } : null;
  }
  function element(tag, text, parent, name) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (name) made.className = name;
    if (parent) parent.append(made);
    return made;
  }
  function describe({ run, i }) {
    const ev = run.ev, wait = ev.kind[i] === WAIT, lane = run.lane[ev.lane[i]];
    const who = (l, time) => `CTA ${l.cta.id}, ${l.name}, at ${time.toFixed(4)} µs`;
    tip.replaceChildren();
    element("b", T[ev.what[i]], tip);
    element("div", `${T[ev.at[i]]} · CTA ${lane.cta.id}, ${lane.name}`, tip);
    const took = ev.end[i] - ev.begin[i];
    element("div", `${ev.begin[i].toFixed(4)} – ${ev.end[i].toFixed(4)} µs, ${ev.stuck[i] ? "and never goes on; blocked for" : wait ? "blocked for" : "takes"} ${took.toFixed(4)} µs`, tip, "main");
    if (ev.guess[i]) element("div", "no wait saw it end: its end is an estimate", tip);
    if (!wait) {
      if (ev.bytes[i]) element("div", `${number(ev.bytes[i])} bytes`, tip);
      if (T[ev.about[i]]) element("div", ev.kind[i] === COPY ? `credits ${T[ev.about[i]]}` : `reads ${T[ev.about[i]]}`, tip);
      const count = releasedBy(run, i).length;
      if (count) element("div", `its end releases ${count} wait${count > 1 ? "s" : ""}`, tip, "main");
      return;
    }
    const what = ev.phase[i] === NONE ? `waits for its own ${T[ev.on[i]]}` : `waits for ${T[ev.about[i]] || T[ev.on[i]]}, ${run.measured ? "phase of parity" : "phase"} ${ev.phase[i]}`;
    element("div", what, tip, "main");
    if (ev.by[i] === NONE) {
      if (ev.byOp[i] !== NONE) element("div", `released by ${T[ev.byWhat[i]]}, ${T[ev.byAt[i]]}, of a CTA that is not recorded`, tip, "main");
      return;
    }
    element("div", `released by ${T[ev.byWhat[i]]}, ${T[ev.byAt[i]]}`, tip, "main");
    element("div", who(run.lane[ev.by[i]], ev.byTime[i]), tip);
  }
  function showTip(x, y) {
    const one = hovered || kept;
    tip.hidden = !one;
    if (!one) return;
    describe(one);
    tip.classList.toggle("kept", !hovered);
    const box = tip.getBoundingClientRect(), right = innerWidth - box.width - 14;
    if (!hovered) { // out of the way of the arrows
      tip.style.left = `${right}px`;
      tip.style.top = `${innerHeight - box.height - 34}px`;
      return;
    }
    const above = y - box.height - 14, below = y + 18, up = leadsDown(one);
    const fits = up ? above > 4 : below + box.height < innerHeight;
    tip.style.left = `${Math.max(4, Math.min(x + 16, right))}px`;
    tip.style.top = `${Math.max(4, fits === up ? above : below)}px`;
  }
  function leadsDown({ run, i }) { // true if the first arrow of an event goes to, or comes from, below
    const ev = run.ev, wait = ev.kind[i] === WAIT ? i : releasedBy(run, i)[0];
    if (wait === undefined || ev.by[wait] === NONE) return false;
    const other = ev.kind[i] === WAIT ? ev.by[wait] : ev.lane[wait];
    return run.lane[other].top > run.lane[ev.lane[i]].top;
  }

  // -- pointer, wheel, keys ---------------------------------------------------------------------

  let grabbed = null;
  function zoom(factor, t) {
    const least = 1e-3, span = Math.min(Math.max((to - from) * factor, least), END * 1.5);
    const real = span / (to - from);
    from = t - (t - from) * real;
    to = from + span;
    within();
  }
  function within() {
    const span = to - from, low = -span * 0.5, high = END + span * 0.5;
    if (from < low) { from = low; to = low + span; }
    if (to > high) { to = high; from = high - span; }
    redraw();
  }
  function move(dt) { from += dt; to += dt; within(); }
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY);
    if (e.shiftKey) { scroll += e.deltaY || e.deltaX; redraw(); }
    else if (sideways) move(e.deltaX * (to - from) / (wide - GUTTER));
    else if (e.offsetX < GUTTER) { scroll += e.deltaY; redraw(); }
    else zoom(Math.exp(e.deltaY * 0.0016), timeAt(e.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => {
    grabbed = { x: e.offsetX, y: e.offsetY, from, to, scroll, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (grabbed) {
      const dx = e.offsetX - grabbed.x, dy = e.offsetY - grabbed.y;
      if (Math.abs(dx) + Math.abs(dy) > 3) grabbed.moved = true;
      if (grabbed.moved) {
        canvas.classList.add("moving");
        const dt = dx * (grabbed.to - grabbed.from) / (wide - GUTTER);
        from = grabbed.from - dt;
        to = grabbed.to - dt;
        scroll = grabbed.scroll - dy;
        within();
      }
      return;
    }
    hovered = eventAt(e.offsetX, e.offsetY);
    showTip(e.clientX, e.clientY);
    redraw();
  });
  canvas.addEventListener("pointerup", (e) => {
    canvas.classList.remove("moving");
    if (grabbed && !grabbed.moved) {
      const strip = stripAt(e.offsetY);
      if (strip && strip.type === "cta") {
        strip.cta.folded = !strip.cta.folded;
        kept = hovered = null;
        arrange();
      } else {
        kept = eventAt(e.offsetX, e.offsetY);
      }
      showTip(e.clientX, e.clientY);
    }
    grabbed = null;
    redraw();
  });
  canvas.addEventListener("pointerleave", () => { hovered = null; showTip(0, 0); redraw(); });
  const all = () => { from = 0; to = END * 1.02; scroll = 0; redraw(); };
  const middle = () => (from + to) / 2;
  document.getElementById("in").onclick = () => zoom(0.6, middle());
  document.getElementById("out").onclick = () => zoom(1 / 0.6, middle());
  document.getElementById("all").onclick = all;
  addEventListener("keydown", (e) => {
    if (e.target === search) { if (e.key === "Enter") nextMatch(e.shiftKey ? -1 : 1); return; }
    const span = to - from, acts = {
      "+": () => zoom(0.6, middle()), "=": () => zoom(0.6, middle()), "-": () => zoom(1 / 0.6, middle()), 0: all,
      ArrowLeft: () => move(-span * 0.15), ArrowRight: () => move(span * 0.15),
      ArrowUp: () => { scroll -= 60; redraw(); }, ArrowDown: () => { scroll += 60; redraw(); },
      Escape: () => { kept = hovered = null; showTip(0, 0); redraw(); }, "/": () => search.focus(),
    };
    if (!e.ctrlKey && !e.metaKey && !e.altKey && acts[e.key]) { e.preventDefault(); acts[e.key](); }
  });

  // -- search -------------------------------------------------------------------------------------

  let found = [], current = -1;
  function look() {
    const wanted = search.value.trim().toLowerCase();
    found = [];
    current = -1;
    matches = wanted ? [] : null;
    const out = document.getElementById("found");
    if (!wanted) { out.textContent = ""; redraw(); return; }
    const has = T.map((text) => text.toLowerCase().includes(wanted));
    for (const run of runs) {
      const ev = run.ev, mine = new Uint8Array(ev.lane.length);
      const lanes = run.lane.map((lane) => lane.name.toLowerCase().includes(wanted));
      for (let i = 0; i < mine.length; i++) {
        if (has[ev.what[i]] || has[ev.at[i]] || has[ev.about[i]] || has[ev.op[i]] || (ev.on[i] !== NONE && has[ev.on[i]]) || lanes[ev.lane[i]]) {
          mine[i] = 1;
          found.push({ run, i });
        }
      }
      matches[run.at] = mine;
    }
    out.textContent = found.length ? `${number(found.length)} found · Enter: next` : "none found";
    redraw();
  }
  function nextMatch(step) {
    if (!found.length) return;
    current = (current + step + found.length) % found.length;
    keep(found[current]);
    document.getElementById("found").textContent = `${number(current + 1)} of ${number(found.length)}`;
  }
  function keep(one) { // brings an event into view, and keeps it
    const { run, i } = one, ev = run.ev, lane = run.lane[ev.lane[i]];
    if (lane.cta.folded) { lane.cta.folded = false; arrange(); }
    const span = to - from;
    if (ev.begin[i] < from || ev.end[i] > to) { from = ev.begin[i] - span * 0.2; to = from + span; }
    const y = placeOf(run, i);
    if (y < scroll || y > scroll + high - AXIS - 40) scroll = y - high / 3;
    kept = one;
    within();
    showTip(0, 0);
  }
  search.addEventListener("input", look);

  // -- the head -----------------------------------------------------------------------------------

  function ending(run, box) { // the fault, and the steps that lead to it
    const { fault } = run;
    if (!fault) return;
    element("pre", T[fault.message], box, "fault");
    if (!fault.steps.length) return;
    const table = element("table", "", box, "steps"), first = element("tr", "", element("thead", "", table));
    for (const name of ["step", "agent", "op", "line", "effect"]) element("th", name, first);
    const body = element("tbody", "", table);
    fault.steps.forEach((step, n) => {
      const row = element("tr", "", body);
      element("td", String(n + 1), row);
      for (const text of step) element("td", T[text], row);
      row.title = "show what happens at this line";
      row.onclick = () => { search.value = T[step[2]]; look(); nextMatch(1); };
    });
  }
  function times({ simulated, measured }) {
    if (measured) return `measured on ${T[measured.device]} at ${measured.ghz} GHz: ${measured.us.toFixed(1)} µs from the first role's begin to the last one's end; occupied: by the rates of the cost model`;
    if (simulated === null) return "";
    return `the launch takes ${simulated.toFixed(1)} µs in the simulator's cost model, which counts copies and MMAs and not arithmetic in registers`;
  }
  function head() {
    for (const run of runs) {
      const box = element("section", "", document.getElementById("head"));
      const shown = run.of < run.grid ? `${number(run.of)} of ${number(run.grid)} CTAs` : `${number(run.grid)} CTA${run.grid > 1 ? "s" : ""}`;
      element("h1", T[run.name], box);
      element("p", [shown, `${number(run.ev.lane.length)} events`, times(run)].filter(Boolean).join(" · "), box);
      if (run.measured && run.measured.lost) element("p", `${number(run.measured.lost)} notes found no room and are missing, the last of their warps`, box, "lost");
      ending(run, box);
      const table = element("table", "", box), first = element("tr", "", element("thead", "", table));
      for (const [name, title] of [
        ["role", "agents of all recorded CTAs together"],
        ["in flight", "the part of its time in which it has a copy or an MMA in flight"],
        ["waiting", "the part of its time in which it waits, for others or for its own copies and MMAs"],
        ["on what", "the part of its time, by barrier; own: copies and MMAs that it has issued itself"],
      ]) element("th", name, first).title = title;
      const body = element("tbody", "", table);
      for (const role of run.roles) {
        const row = element("tr", "", body);
        element("td", role.agents > 1 ? `${T[role.role]} × ${role.agents}` : T[role.role], row);
        for (const [part, colour] of [[role.busy, "--copy"], [role.waiting, "--wait-line"]]) {
          const cell = element("td", "", row), bar = element("span", "", cell, "bar"), fill = element("i", "", bar);
          fill.style.width = percent(Math.min(part, 1)).replace(" ", "");
          fill.style.background = `var(${colour})`;
          element("span", percent(part), cell, "number");
        }
        const on = element("td", "", row, "on");
        for (const [what, own, count, part] of role.waits.slice(0, 5)) {
          const chip = element("span", `${own ? "own " : ""}${T[what]} ${percent(part)}`, on, own ? "own" : "");
          chip.title = `${number(count)} waits that blocked`;
        }
        if (!role.waits.length) element("span", "nothing", on, "own");
      }
    }
    const legend = document.getElementById("legend");
    for (const [name, colour, edge] of [
      ["copy in", "--copy"], ["copy out", "--out"], ["MMA", "--mma"], ["wait for others", "--wait", "--wait-line"],
      ["wait for its own", "--own", "--own-line"], ["stages filled", "--ring"],
      ...(runs.some((run) => run.ev.stuck.includes(1)) ? [["stuck", "--stuck", "--stuck-line"]] : []),
    ]) {
      const item = element("span", name, legend);
      item.style.setProperty("--colour", `var(${colour})`);
      if (edge) item.style.setProperty("--edge", `var(${edge})`);
    }
  }

  // -- start --------------------------------------------------------------------------------------

  head();
  restyle();
  arrange();
  resize();
  const asked = new URLSearchParams(location.hash.slice(1)); // #from=1&to=2.5&search=full&event=12
  if (asked.has("from")) from = Number(asked.get("from")) || 0;
  if (asked.has("to")) to = Math.max(Number(asked.get("to")) || END, from + 1e-3);
  if (asked.has("search")) { search.value = asked.get("search"); look(); }
  draw();
  const event = Number(asked.get("event") ?? NONE);
  if (runs[0] && event >= 0 && event < runs[0].ev.lane.length) keep({ run: runs[0], i: event });
  new ResizeObserver(() => { resize(); draw(); }).observe(view);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { restyle(); draw(); });
  document.documentElement.dataset.events = COUNT;
  document.documentElement.dataset.ready = Math.round(performance.now());
})();
