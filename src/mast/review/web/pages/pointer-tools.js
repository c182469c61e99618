// Mouse, pen and touch input on the spectrogram: choose, move, resize and draw boxes; pan; zoom with the wheel or two fingers.

const MIN_DRAG_PX = 5;
const TOUCH_PX = 16;

export class PointerTools {
  // `edit` has choose(box), place(box, bounds) and draw(bounds).
  constructor(canvas, edit) {
    Object.assign(this, { canvas, edit });
    this.drawing = false;
    this.down = new Map();
    const { element } = canvas;
    element.addEventListener('pointerdown', (event) => this.press(event));
    element.addEventListener('pointermove', (event) => this.move(event));
    for (const name of ['pointerup', 'pointercancel']) element.addEventListener(name, (event) => this.release(event));
    element.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    const jump = (event) => event.buttons && this.jump(event);
    canvas.overview.addEventListener('pointerdown', jump);
    canvas.overview.addEventListener('pointermove', jump);
  }

  setDrawing(on) {
    this.drawing = on;
    this.canvas.element.classList.toggle('drawing', on);
  }

  press(event) {
    const { canvas } = this;
    if (!canvas.recording) return;
    canvas.element.setPointerCapture(event.pointerId);
    const at = { x: event.offsetX, y: event.offsetY };
    this.down.set(event.pointerId, at);
    if (this.down.size === 2) {
      this.cancelDrag();
      return;
    }
    const hit = canvas.under(at.x, at.y, event.pointerType === 'touch' ? TOUCH_PX : undefined);
    const draws = (this.drawing || event.shiftKey) && !(hit && hit.edges);
    const kind = draws ? 'draw' : hit && (hit.edges || hit.box.event_id === canvas.chosen) ? 'place' : 'pan';
    this.drag = { kind, hit, from: at, last: at, moved: false };
  }

  move(event) {
    const { canvas, drag } = this;
    if (!canvas.recording) return;
    const at = { x: event.offsetX, y: event.offsetY };
    if (!this.down.has(event.pointerId)) {
      this.hover(at);
      return;
    }
    const before = this.down.get(event.pointerId);
    this.down.set(event.pointerId, at);
    if (this.down.size === 2) this.pinch(event.pointerId, before, at);
    if (!drag) return;
    drag.moved ||= Math.hypot(at.x - drag.from.x, at.y - drag.from.y) > MIN_DRAG_PX;
    if (drag.moved) this.dragTo(at);
    drag.last = at;
    canvas.redraw();
  }

  dragTo(at) {
    const { canvas, drag } = this;
    const { view } = canvas;
    if (drag.kind === 'pan') {
      view.panTime(view.timeAt(drag.last.x) - view.timeAt(at.x));
      view.panBand(view.hzAt(drag.last.y) - view.hzAt(at.y));
    } else if (drag.kind === 'draw') {
      canvas.draft = drawnBounds(view, drag.from, at, canvas.recording);
    } else {
      canvas.moved = { ...drag.hit.box, ...movedBounds(drag.hit, view, drag.from, at, canvas.recording) };
    }
  }

  release(event) {
    const { canvas, drag } = this;
    this.down.delete(event.pointerId);
    if (!drag) return;
    const { draft, moved } = canvas;
    this.cancelDrag();
    if (event.type === 'pointercancel') return;
    if (!drag.moved) {
      if (drag.kind !== 'draw') this.edit.choose(drag.hit ? drag.hit.box : null);
    } else if (drag.kind === 'draw' && draft) {
      this.edit.draw(draft);
    } else if (drag.kind === 'place' && moved) {
      this.edit.place(drag.hit.box, boundsOf(moved));
    }
  }

  cancelDrag() {
    this.drag = null;
    this.canvas.draft = null;
    this.canvas.moved = null;
    this.canvas.redraw();
  }

  pinch(moving, before, after) {
    const { view } = this.canvas;
    const [, other] = [...this.down].find(([id]) => id !== moving);
    const [widthBefore, width] = [Math.abs(before.x - other.x), Math.abs(after.x - other.x)];
    const [heightBefore, height] = [Math.abs(before.y - other.y), Math.abs(after.y - other.y)];
    const [middleX, middleY] = [(after.x + other.x) / 2, (after.y + other.y) / 2];
    if (widthBefore > 40 && width > 40) view.zoomTime(widthBefore / width, view.timeAt(middleX));
    if (heightBefore > 40 && height > 40) view.zoomBand(heightBefore / height, view.hzAt(middleY));
    view.panTime(view.timeAt((before.x - after.x) / 2) - view.timeAt(0));
    this.canvas.redraw();
  }

  wheel(event) {
    const { canvas } = this;
    if (!canvas.recording) return;
    event.preventDefault();
    const { view } = canvas;
    const amount = (event.deltaY || event.deltaX) * (event.deltaMode ? 30 : 1);
    const factor = Math.exp(Math.min(Math.max(amount, -300), 300) / 400);
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.panTime((amount / view.plotWidth) * view.spanS);
    else if (event.altKey || event.ctrlKey) view.zoomBand(factor, view.hzAt(event.offsetY));
    else view.zoomTime(factor, view.timeAt(event.offsetX));
    canvas.redraw();
  }

  hover(at) {
    const hit = this.canvas.under(at.x, at.y);
    this.canvas.element.style.cursor = this.drawing ? '' : hit && hit.edges ? cursorOf(hit.edges) : hit ? 'pointer' : '';
  }

  jump(event) {
    const { canvas } = this;
    if (!canvas.recording) return;
    const middleS = (event.offsetX / canvas.overview.clientWidth) * canvas.recording.duration_s;
    canvas.view.showTime(middleS - canvas.view.spanS / 2, middleS + canvas.view.spanS / 2);
    canvas.redraw();
  }
}

export function boundsOf({ start_s, end_s, low_hz, high_hz }) {
  return { start_s, end_s, low_hz, high_hz };
}

// Bounds clipped to the recording, sorted, and with a minimum size.
export function clipped(bounds, recording) {
  const topHz = recording.sample_rate_hz / 2;
  const [start, end] = [bounds.start_s, bounds.end_s].sort((a, b) => a - b);
  const [low, high] = [bounds.low_hz, bounds.high_hz].sort((a, b) => a - b);
  const start_s = Math.min(Math.max(0, start), recording.duration_s - 0.002);
  const low_hz = Math.min(Math.max(0, low), topHz - 10);
  return {
    start_s, end_s: Math.min(Math.max(end, start_s + 0.002), recording.duration_s),
    low_hz, high_hz: Math.min(Math.max(high, low_hz + 10), topHz),
  };
}

function drawnBounds(view, from, to, recording) {
  const [start_s, end_s] = [view.timeAt(from.x), view.timeAt(to.x)];
  const [low_hz, high_hz] = [view.hzAt(from.y), view.hzAt(to.y)];
  return clipped({ start_s, end_s, low_hz, high_hz }, recording);
}

function movedBounds({ box, edges }, view, from, to, recording) {
  const byS = view.timeAt(to.x) - view.timeAt(from.x);
  const byHz = view.hzAt(to.y) - view.hzAt(from.y);
  if (!edges) return shifted(box, byS, byHz, recording);
  const bounds = boundsOf(box);
  for (const side of ['start_s', 'end_s']) if (edges[side]) bounds[side] += byS;
  for (const side of ['low_hz', 'high_hz']) if (edges[side]) bounds[side] += byHz;
  return clipped(bounds, recording);
}

// A box moved within the limits of the recording.
export function shifted(box, byS, byHz, recording) {
  const topHz = recording.sample_rate_hz / 2;
  const s = Math.min(Math.max(byS, -box.start_s), recording.duration_s - box.end_s);
  const hz = Math.min(Math.max(byHz, -box.low_hz), topHz - box.high_hz);
  return { start_s: box.start_s + s, end_s: box.end_s + s, low_hz: box.low_hz + hz, high_hz: box.high_hz + hz };
}

function cursorOf({ start_s: left, end_s: right, high_hz: top, low_hz: bottom }) {
  if ((left && top) || (right && bottom)) return 'nwse-resize';
  if ((right && top) || (left && bottom)) return 'nesw-resize';
  return left || right ? 'ew-resize' : 'ns-resize';
}
