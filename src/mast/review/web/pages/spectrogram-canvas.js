// The canvas with the spectrogram of a recording and its boxes.
import { drawAxes, INK } from './axes.js';
import { BoxIndex } from './box-index.js';
import { TileLayer } from './tile-layer.js';
import { GUTTER, Viewport } from './viewport.js';

export const STATE_COLOURS = { open: '#ffd23f', accepted: '#5ff0a0', rejected: '#ff6f8f', unsure: '#b79cff' };
const HANDLE_PX = 7;

export class SpectrogramCanvas {
  constructor(element, overview, palette, { failed }) {
    Object.assign(this, { element, overview, palette, failed });
    this.showsRejected = true;
    this.chosen = null;
    this.playing = null;
    this.draft = null;
    new ResizeObserver(() => this.redraw()).observe(element.parentElement);
  }

  open(recording, boxes) {
    this.recording = recording;
    this.boxes = new BoxIndex(boxes);
    this.view = new Viewport(recording.duration_s, recording.sample_rate_hz / 2);
    this.tiles = new TileLayer(recording, this.palette, () => this.redraw(), this.failed);
    this.chosen = null;
    this.redraw();
  }

  // The visible boxes; rejected boxes only if they are shown.
  visible() {
    const near = this.boxes.between(this.view.startS, this.view.endS);
    return near.filter((box) => this.showsRejected || box.state !== 'rejected' || box.event_id === this.chosen);
  }

  get chosenBox() {
    return this.chosen && this.boxes ? this.boxes.get(this.chosen) : null;
  }

  redraw() {
    if (!this.recording || this.isRedrawPending) return;
    this.isRedrawPending = true;
    requestAnimationFrame(() => {
      this.isRedrawPending = false;
      this.draw();
    });
  }

  draw() {
    const context = resized(this.element, this.element.parentElement);
    if (!context) return;
    const { view } = this;
    view.width = this.element.clientWidth;
    view.height = this.element.clientHeight;
    context.clearRect(0, 0, view.width, view.height);
    context.save();
    context.beginPath();
    context.rect(GUTTER.left, GUTTER.top, view.plotWidth, view.plotHeight);
    context.clip();
    context.fillStyle = '#000';
    context.fillRect(GUTTER.left, GUTTER.top, view.plotWidth, view.plotHeight);
    this.tiles.draw(context, view);
    const visible = this.visible();
    for (const box of visible) if (box.kind === 'span') drawSpan(context, view, box);
    for (const box of visible) if (box.kind === 'sound' && box.event_id !== this.chosen) drawBox(context, view, box, false);
    const chosen = this.chosenBox;
    if (chosen) drawBox(context, view, this.moved || chosen, true);
    if (this.draft) drawBox(context, view, { ...this.draft, state: 'accepted', label: null }, false);
    if (this.playing) drawCursor(context, view, this.playing());
    context.restore();
    drawAxes(context, view, this.recording.start_local);
    this.drawOverview();
  }

  // Overview strip of the whole recording: events, reviewed spans and the visible part.
  drawOverview() {
    const context = resized(this.overview, this.overview);
    if (!context) return;
    const [width, height] = [this.overview.clientWidth, this.overview.clientHeight];
    const at = (timeS) => (timeS / this.recording.duration_s) * width;
    const key = `${this.recording.recording_id} ${this.boxes.changes} ${width}`;
    if (this.stripKey !== key) { // redraw thousands of boxes only if they change, not on every pan
      this.strip = drawStrip(this.boxes.rows, at, width, height);
      this.stripKey = key;
    }
    context.drawImage(this.strip, 0, 0, width, height);
    context.fillStyle = '#ffffff1c';
    context.strokeStyle = INK;
    context.lineWidth = 1.5;
    const [left, visibleWidth] = [at(this.view.startS), Math.max(3, at(this.view.spanS))];
    context.fillRect(left, 1, visibleWidth, height - 2);
    context.strokeRect(left + 0.75, 0.75, visibleWidth - 1.5, height - 1.5);
  }

  // The box at a point, with the edges of the chosen box near the point; null if there is none.
  under(x, y, reachPx = HANDLE_PX) {
    const chosen = this.chosenBox;
    if (chosen && chosen.kind === 'sound') {
      const edges = edgesNear(this.view, chosen, x, y, reachPx);
      if (edges) return { box: chosen, edges };
    }
    const [timeS, hz] = [this.view.timeAt(x), this.view.hzAt(y)];
    const hit = this.visible().filter((box) => box.kind === 'sound' && inside(this.view, box, timeS, hz, reachPx / 2));
    hit.sort((a, b) => areaOf(a) - areaOf(b)); // the smallest box wins, because large boxes are easy to hit elsewhere
    return hit.length ? { box: hit.find((box) => box.event_id === this.chosen) || hit[0], edges: null } : null;
  }
}

function drawStrip(rows, at, width, height) {
  const strip = new OffscreenCanvas(2 * width, 2 * height);
  const context = strip.getContext('2d');
  context.scale(2, 2);
  context.fillStyle = '#1d1827';
  context.fillRect(0, 0, width, height);
  for (const box of rows) {
    const span = box.kind === 'span';
    context.fillStyle = span ? '#35d0ff44' : STATE_COLOURS[box.state];
    const [top, barHeight] = span ? [0, height] : [6, height - 12];
    context.fillRect(at(box.start_s), top, Math.max(1.5, at(box.end_s - box.start_s)), barHeight);
  }
  return strip;
}

function resized(canvas, container) {
  const [width, height] = [container.clientWidth, container.clientHeight];
  if (!width || !height) return null;
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

export function drawBox(context, view, box, chosen) {
  const [left, right, top, bottom] = [view.x(box.start_s), view.x(box.end_s), view.y(box.high_hz), view.y(box.low_hz)];
  const colour = STATE_COLOURS[box.state];
  context.lineWidth = (chosen ? 2.5 : 1.5) + 2;
  context.strokeStyle = '#000000aa';
  context.setLineDash([]);
  context.strokeRect(left, top, right - left, bottom - top);
  context.lineWidth = chosen ? 2.5 : 1.5;
  context.strokeStyle = colour;
  context.setLineDash(box.state === 'open' ? [5, 3] : box.state === 'rejected' ? [2, 4] : []);
  context.strokeRect(left, top, right - left, bottom - top);
  context.setLineDash([]);
  if (box.label) drawLabel(context, box.label, left, top, colour);
  if (chosen) drawHandles(context, left, right, top, bottom);
}

function drawLabel(context, text, left, top, colour) {
  context.font = '12px system-ui, sans-serif';
  context.textAlign = 'left';
  context.textBaseline = 'bottom';
  const y = Math.max(top - 3, GUTTER.top + 15);
  context.fillStyle = '#000000b0';
  context.fillRect(left - 1, y - 14, context.measureText(text).width + 6, 15);
  context.fillStyle = colour;
  context.fillText(text, left + 2, y);
}

function drawHandles(context, left, right, top, bottom) {
  context.fillStyle = '#fff';
  for (const x of [left, right]) for (const y of [top, bottom]) context.fillRect(x - 3.5, y - 3.5, 7, 7);
}

function drawSpan(context, view, box) {
  if (box.state !== 'accepted') return;
  const [left, right] = [view.x(box.start_s), view.x(box.end_s)];
  context.fillStyle = '#35d0ff';
  context.fillRect(left, GUTTER.top, right - left, 4);
}

function drawCursor(context, view, timeS) {
  context.strokeStyle = '#fff';
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(view.x(timeS), GUTTER.top);
  context.lineTo(view.x(timeS), view.height - GUTTER.bottom);
  context.stroke();
}

function edgesNear(view, box, x, y, reachPx) {
  const [left, right, top, bottom] = [view.x(box.start_s), view.x(box.end_s), view.y(box.high_hz), view.y(box.low_hz)];
  if (x < left - reachPx || x > right + reachPx || y < top - reachPx || y > bottom + reachPx) return null;
  const small = Math.min(reachPx, (right - left) / 3 + 2, (bottom - top) / 3 + 2);
  const edges = {
    start_s: Math.abs(x - left) <= small, end_s: Math.abs(x - right) <= small,
    high_hz: Math.abs(y - top) <= small, low_hz: Math.abs(y - bottom) <= small,
  };
  return Object.values(edges).some(Boolean) ? edges : null;
}

function inside(view, box, timeS, hz, slackPx) {
  const slackS = (slackPx / view.plotWidth) * view.spanS;
  const slackHz = (slackPx / view.plotHeight) * view.bandHz;
  return timeS >= box.start_s - slackS && timeS <= box.end_s + slackS && hz >= box.low_hz - slackHz && hz <= box.high_hz + slackHz;
}

function areaOf(box) {
  return (box.end_s - box.start_s) * (box.high_hz - box.low_hz);
}
